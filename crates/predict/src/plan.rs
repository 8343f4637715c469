//! A plan: the chunks, the servers and the strategy that a call would best have.
//!
//! [`plan`] predicts a call in closed form for every combination of some chunks, some numbers of
//! servers on each host, and the strategies, and orders them by their seconds. The chunks are cut
//! from one rank's part of the array, so that few ranks share a chunk: halved along the longest
//! dimension until a chunk has about 1, 4, 16, 64 or 256 MiB. The whole part of a rank (natural
//! chunking) and one flat file are among them.
//!
//! A chunk that would make more than [`CHUNKS_MAX`] files is left out: the time of a plan is in
//! proportion to the chunks.

use penstock_engine::{Error, Kind, Result};
use penstock_sim::preset::Preset;
use serde::Serialize;

use crate::By;
use crate::description::{Array, Description};
use crate::predicting::predict_by;
use crate::prediction::Prediction;
use crate::question::Question;

/// The sizes of chunks, about.
const CHUNK_BYTES: [u64; 5] = [1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20];
/// The most chunks of an array.
pub const CHUNKS_MAX: u64 = 300_000;

/// One combination, and what the call would take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The extents of a chunk; none for one flat row-major file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Vec<u64>>,
    /// The bytes of a chunk, or of the file.
    pub chunk_bytes: u64,
    /// The number of chunks, or 1.
    pub objects: u64,
    pub prediction: Prediction,
}

/// Predicts the call of one array for all combinations, the fastest first. What the description
/// gives (chunks, servers, strategies) is not varied.
///
/// # Errors
/// As [`predict_all`](crate::predict_all); [`Kind::Unsupported`] for several arrays.
pub fn plan(machine: &Preset, description: &Description) -> Result<Vec<Candidate>> {
    let [array] = &description.arrays[..] else {
        let cause = "a plan is of one array: plan them one after the other";
        return Err(Error::new(Kind::Unsupported, "planning a call", cause));
    };
    let machine = description.machine(machine)?;
    let all_chunks = match &array.chunks {
        Some(chunks) => vec![Some(chunks.clone())],
        None => chunks_of(array)?,
    };
    let lists = description.lists()?;
    let mut candidates = Vec::new();
    for chunks in all_chunks {
        for servers in servers_of(&machine, description) {
            let mut described = Description {
                servers: Some(servers),
                ..description.clone()
            };
            described.arrays[0].chunks.clone_from(&chunks);
            for strategy in description.strategies()? {
                let requests = described.requests(&machine, strategy)?;
                let question = Question {
                    requests: &requests,
                    lists: &lists,
                    clients: description.ranks,
                    hosts: description.hosts,
                };
                let disk = &requests[0].disk;
                candidates.push(Candidate {
                    chunks: chunks.clone(),
                    chunk_bytes: disk.bytes().div_ceil(disk.objects().max(1)),
                    objects: disk.objects(),
                    prediction: predict_by(&machine, &question, Some(By::ClosedForm))?,
                });
            }
        }
    }
    candidates.sort_by(|one, other| {
        let seconds = |of: &Candidate| of.prediction.seconds;
        seconds(one).total_cmp(&seconds(other))
    });
    Ok(candidates)
}

/// The chunks of an array that a plan weighs.
fn chunks_of(array: &Array) -> Result<Vec<Option<Vec<u64>>>> {
    let width = array.width()?;
    let part = array.part()?;
    let bytes = |extents: &[u64]| extents.iter().product::<u64>().saturating_mul(width);
    let chunk_count = |extents: &[u64]| {
        let counts = array.shape.iter().zip(extents);
        counts.map(|(all, one)| all.div_ceil(*one)).product::<u64>()
    };
    let mut all = vec![None, Some(part.clone())];
    for wanted in CHUNK_BYTES {
        let mut extents = part.clone();
        while bytes(&extents) > wanted {
            let Some(longest) = extents.iter_mut().max_by_key(|extent| **extent) else {
                break;
            };
            if *longest == 1 {
                break;
            }
            *longest = longest.div_ceil(2);
        }
        all.push(Some(extents));
    }
    let mut kept: Vec<Option<Vec<u64>>> = Vec::new();
    for chunks in all {
        let are_few = chunks
            .as_ref()
            .is_none_or(|extents| chunk_count(extents) <= CHUNKS_MAX);
        if are_few && !kept.contains(&chunks) {
            kept.push(chunks);
        }
    }
    Ok(kept)
}

/// The numbers of servers that a plan weighs: on each host 1, 2, 4 and so on, and one for each
/// processor.
fn servers_of(machine: &Preset, description: &Description) -> Vec<usize> {
    if let Some(servers) = description.servers {
        return vec![servers];
    }
    let hosts = description.hosts;
    let Some(host) = &machine.host else {
        return vec![machine.nodes.disks];
    };
    let most = host
        .processors
        .min(description.ranks.div_ceil(hosts))
        .max(1);
    let doubled = std::iter::successors(Some(1), |each| Some(each * 2));
    let mut each: Vec<usize> = doubled.take_while(|each| *each < most).collect();
    each.push(most);
    each.into_iter().map(|each| each * hosts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Direction;

    const HOST: &str = include_str!("../tests/all/host.toml");

    fn description(ranks: usize, hosts: usize, shape: &[u64], mesh: &[u64]) -> Description {
        Description {
            operation: Direction::Write,
            ranks,
            hosts,
            servers: None,
            strategies: vec!["disk-directed".into(), "two-phase".into()],
            direct: false,
            sync: false,
            block_bytes: 1 << 24,
            arrays: vec![Array {
                shape: shape.into(),
                dtype: "f8".into(),
                memory: vec!["BLOCK"; shape.len()].join(","),
                mesh: mesh.into(),
                lists: Vec::new(),
                chunks: None,
            }],
        }
    }

    #[test]
    fn the_fastest_comes_first_and_all_are_of_the_array() {
        let machine = Preset::from_toml(HOST, "host.toml").unwrap();
        let described = description(8, 1, &[256, 256, 64], &[2, 2, 2]);
        let plan = plan(&machine, &described).unwrap();
        let seconds: Vec<f64> = plan.iter().map(|one| one.prediction.seconds).collect();
        assert!(seconds.is_sorted() && seconds[0] > 0.0);
        assert!(
            plan.iter()
                .any(|one| one.chunks.is_none() && one.objects == 1)
        );
        let natural = Some(vec![128, 128, 32]);
        assert!(
            plan.iter()
                .any(|one| one.chunks == natural && one.objects == 8)
        );
        for one in &plan {
            assert_eq!(one.prediction.bytes, 256 * 256 * 64 * 8);
            assert!([1, 2].contains(&one.prediction.servers), "two processors");
        }
    }

    #[test]
    fn what_is_given_is_not_varied() {
        let machine = Preset::from_toml(HOST, "host.toml").unwrap();
        let mut described = description(4, 2, &[64, 64], &[2, 2]);
        described.servers = Some(3);
        described.strategies = vec!["caching".into()];
        described.arrays[0].chunks = Some(vec![16, 64]);
        let plan = plan(&machine, &described).unwrap();
        assert_eq!(plan.len(), 1);
        assert_eq!(plan[0].chunks, Some(vec![16, 64]));
        assert_eq!(
            (plan[0].prediction.strategy, plan[0].prediction.servers),
            ("caching", 3)
        );
    }

    /// 2 TB over 102,400 ranks of 1,600 hosts.
    #[test]
    fn many_ranks_have_a_plan() {
        let machine = Preset::from_toml(HOST, "host.toml").unwrap();
        let shape = [512, 512, 1024, 1024];
        let described = description(102_400, 1600, &shape, &[8, 8, 40, 40]);
        let plan = plan(&machine, &described).unwrap();
        assert!(plan.len() >= 8);
        for one in &plan {
            assert!(one.objects <= CHUNKS_MAX && one.prediction.seconds.is_finite());
            assert_eq!(one.prediction.bytes, 1 << 41);
        }
    }

    #[test]
    fn several_arrays_are_refused() {
        let machine = Preset::from_toml(HOST, "host.toml").unwrap();
        let mut described = description(4, 1, &[64, 64], &[2, 2]);
        described.arrays.push(described.arrays[0].clone());
        assert_eq!(
            plan(&machine, &described).unwrap_err().kind,
            Kind::Unsupported
        );
    }
}
