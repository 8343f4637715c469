//! How an array is stored at the target of a copy.

use penstock_engine::{Error, Kind, Result};
use penstock_layout::Edges;

use super::options::{Extents, Form, Options};
use crate::codec::{Codec, Compressor};
use crate::formats::hdf5::attributes;
use crate::{ArraySchema, Fill, Format, Storage};

/// The bytes of a chunk, where neither the source nor the caller says what chunks there are.
const CHUNK_BYTES: u64 = 16 << 20;

/// The schema of an array at the target.
pub(super) fn target_schema(source: &ArraySchema, options: &Options) -> Result<ArraySchema> {
    let refused = |cause: &str| {
        let doing = format!("copying '{}'", source.name);
        Error::new(Kind::Schema, doing, cause)
    };
    let mut schema = source.clone();
    let (chunks, subchunks, codec) = match &options.form {
        Form::RowMajor(format) => {
            if *format == Format::Npy && !schema.attributes.is_empty() {
                if !options.drops_attributes {
                    return Err(refused(
                        "a .npy file has no place for the array's attributes: leave them out by --drop-attributes \
                         (drop_attributes=True), or take another form",
                    ));
                }
                schema.attributes.clear();
            }
            schema.disk = Storage::RowMajor { format: *format };
            schema.fill = Fill::default();
            return Ok(schema);
        }
        Form::Hdf5 {
            chunks, filters, ..
        } => {
            schema.disk = in_dataset(source, chunks.as_ref(), filters.as_deref())?;
            return Ok(schema);
        }
        Form::Zarr {
            chunks,
            subchunks,
            codec,
        } => (chunks, subchunks, codec),
    };
    let names = source.names_of_dimensions();
    let (chunk, inner, word) = match &source.disk {
        Storage::Chunks {
            chunk,
            subchunks,
            codec,
        } => (Some(chunk.clone()), subchunks.clone(), codec.clone()),
        Storage::Hdf5 { chunk, filters, .. } => {
            attributes::for_xarray(&mut schema.attributes, &schema.element);
            // The filters are not Zarr's: what was compressed stays compressed.
            let codec = if filters == "none" { "none" } else { "zstd" };
            let chunk = chunk.clone().unwrap_or_else(|| usual_chunk(source));
            (Some(Edges::regular(&chunk)), None, codec.to_string())
        }
        _ => (None, None, Codec::default().to_string()),
    };
    let word = codec.clone().unwrap_or(word);
    if word.starts_with('{') {
        return Err(refused(
            "its codec is one that Penstock reads and Zarr's third format has no word for: give another",
        ));
    }
    let is_said = chunks.as_ref().is_some_and(|chunks| chunks.fits(&names));
    if chunk.is_none() && !is_said && !source.shape.is_empty() {
        return Err(refused(
            "the source has no chunks: say which the copy is to have (--chunks, chunks=), or that it is one row-major file \
             (--row-major, row_major=True)",
        ));
    }
    let whole = whole(source);
    let chunk = chunk.unwrap_or_else(|| Edges::regular(&whole));
    let chunk = match chunks {
        Some(chunks) => chunks.of(&names, &whole, &chunk),
        None => chunk,
    };
    let divides = |inner: &Vec<u64>| {
        let mut pairs = chunk.iter().zip(inner);
        pairs.all(|(edges, inner)| *inner > 0 && edges.are_multiples_of(*inner))
    };
    let subchunks = match subchunks {
        Some(extents) if extents.fits(&names) => {
            let former = inner.filter(divides);
            let former = former.unwrap_or_else(|| Edges::largest_of(&chunk));
            Some(extents.of(&names, &whole, &former))
        }
        _ => inner.filter(divides),
    };
    schema.disk = Storage::Chunks {
        chunk,
        subchunks,
        codec: word,
    };
    Ok(schema)
}

/// The extents of one chunk for the whole array.
fn whole(source: &ArraySchema) -> Vec<u64> {
    source.shape.iter().map(|&extent| extent.max(1)).collect()
}

/// Chunks for an array that has none: as many whole rows as make up [`CHUNK_BYTES`].
fn usual_chunk(source: &ArraySchema) -> Vec<u64> {
    let mut chunk = whole(source);
    for d in 0..chunk.len() {
        let of_one = chunk[d + 1..].iter().product::<u64>() * source.element.width();
        chunk[d] = (CHUNK_BYTES / of_one.max(1)).clamp(1, chunk[d]);
        if chunk[d] > 1 {
            break;
        }
    }
    chunk
}

/// The storage of an array as a dataset of an HDF5 file.
fn in_dataset(
    source: &ArraySchema,
    chunks: Option<&Extents>,
    filters: Option<&str>,
) -> Result<Storage> {
    let names = source.names_of_dimensions();
    let (chunk, words) = match &source.disk {
        Storage::Chunks {
            chunk,
            subchunks,
            codec,
        } => {
            // A sub-chunk is what a chunk of HDF5 is: it is encoded by itself. All have one extent.
            let largest = || Edges::largest_of(chunk);
            let chunk = subchunks.clone().unwrap_or_else(largest);
            (Some(chunk), filters_for(codec))
        }
        Storage::Hdf5 { chunk, filters, .. } => (chunk.clone(), filters.clone()),
        _ => (None, "none".to_string()),
    };
    let words = filters.map_or(words, str::to_string);
    let is_said = chunks.filter(|chunks| chunks.fits(&names));
    let has_filters = !matches!(words.as_str(), "none" | "");
    let chunk = match (chunk, is_said) {
        (former, Some(said)) => {
            let whole = whole(source);
            Some(said.of(&names, &whole, former.as_ref().unwrap_or(&whole)))
        }
        (None, None) if has_filters => Some(usual_chunk(source)),
        (former, None) => former,
    };
    // One element has neither chunks nor filters.
    let is_one = source.shape.is_empty();
    Ok(Storage::Hdf5 {
        dataset: String::new(),
        chunk: chunk.filter(|_| !is_one),
        filters: match is_one {
            true => "none".to_string(),
            false => words,
        },
        is_netcdf: false,
    })
}

/// Filters that everybody can read, for what Zarr's codec does.
fn filters_for(codec: &str) -> String {
    let (compression, has_sum) = match codec.parse() {
        Ok(Codec::Word { compressor, crc32c }) => (compressor, crc32c),
        // A list of codecs of others most likely compresses.
        _ => (Compressor::Zstd(0), false),
    };
    let mut words = Vec::new();
    match compression {
        Compressor::None => {}
        Compressor::Gzip(level) => words.push(format!("deflate:{level}")),
        Compressor::Zstd(_) | Compressor::Blosc { .. } => {
            words.extend(["shuffle".to_string(), "deflate:4".to_string()]);
        }
    }
    if has_sum {
        words.push("fletcher32".to_string());
    }
    match words.is_empty() {
        true => "none".to_string(),
        false => words.join("+"),
    }
}

impl Extents {
    /// Whether these extents are for an array with these dimensions.
    pub(super) fn fits(&self, names: &[String]) -> bool {
        match self {
            Self::InOrder(extents) => extents.len() == names.len(),
            Self::ByName(extents) => extents.iter().any(|(name, _)| names.contains(name)),
        }
    }

    /// The extents for an array with the dimensions `names`: `whole` are the extents of the array,
    /// and `former` stay where none are given.
    fn of<T: Clone + From<u64>>(&self, names: &[String], whole: &[u64], former: &[T]) -> Vec<T> {
        if !self.fits(names) {
            return former.to_vec();
        }
        let said = |extent: &Option<u64>, d: usize| T::from(extent.unwrap_or(whole[d]));
        let extent = |d: usize| match self {
            Self::InOrder(extents) => said(&extents[d], d),
            Self::ByName(extents) => {
                let named = extents.iter().find(|(name, _)| *name == names[d]);
                named.map_or_else(|| former[d].clone(), |(_, extent)| said(extent, d))
            }
        };
        (0..names.len()).map(extent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementType;

    fn source(chunk: &[u64], subchunks: Option<&[u64]>) -> ArraySchema {
        let disk = Storage::Chunks {
            chunk: Edges::regular(chunk),
            subchunks: subchunks.map(<[u64]>::to_vec),
            codec: "zstd:3".to_string(),
        };
        let mut schema = ArraySchema::new("u", &[10, 20, 30], ElementType::F8, disk);
        schema.dimension_names = Some(["time", "lat", "lon"].map(str::to_string).into());
        schema
    }

    fn stored_as(
        schema: &ArraySchema,
        chunks: &str,
        subchunks: &str,
    ) -> (Vec<u64>, Option<Vec<u64>>) {
        let extents = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        let options = Options {
            form: Form::Zarr {
                chunks: extents(chunks),
                subchunks: extents(subchunks),
                codec: None,
            },
            ..Options::default()
        };
        match target_schema(schema, &options).unwrap().disk {
            Storage::Chunks {
                chunk,
                subchunks,
                codec,
            } if codec == "zstd:3" => (Edges::regular_extents(&chunk).unwrap(), subchunks),
            disk => panic!("{disk}"),
        }
    }

    #[test]
    fn what_is_not_said_is_as_in_the_source() {
        let plain = source(&[1, 10, 10], None);
        for (chunks, expected) in [
            ("", [1, 10, 10]),
            ("5,-1,7", [5, 20, 7]),
            ("time=5", [5, 10, 10]),
            ("lon=-1,time=2", [2, 10, 30]),
            ("7", [1, 10, 10]),
            ("depth=1", [1, 10, 10]),
        ] {
            assert_eq!(
                stored_as(&plain, chunks, ""),
                (expected.to_vec(), None),
                "{chunks}"
            );
        }
    }

    #[test]
    fn listed_chunks_stay_where_nothing_is_said() {
        let mut listed = source(&[1, 10, 10], Some(&[1, 2, 10]));
        let edges = Edges::Listed(vec![4, 6, 10]);
        if let Storage::Chunks { chunk, .. } = &mut listed.disk {
            chunk[1] = edges.clone();
        }
        for (chunks, chunk, subchunks) in [
            ("", [1.into(), edges.clone(), 10.into()], true),
            ("time=5", [5.into(), edges.clone(), 10.into()], true),
            (
                "lat=5",
                Edges::regular(&[1, 5, 10]).try_into().unwrap(),
                false,
            ),
        ] {
            let options = Options {
                form: Form::Zarr {
                    chunks: (!chunks.is_empty()).then(|| chunks.parse().unwrap()),
                    subchunks: None,
                    codec: None,
                },
                ..Options::default()
            };
            let disk = Storage::Chunks {
                chunk: chunk.to_vec(),
                subchunks: subchunks.then(|| vec![1, 2, 10]),
                codec: "zstd:3".to_string(),
            };
            assert_eq!(target_schema(&listed, &options).unwrap().disk, disk);
        }
    }

    #[test]
    fn sub_chunks_stay_where_they_divide_the_chunks() {
        let sharded = source(&[4, 20, 30], Some(&[2, 10, 10]));
        let kept = Some(vec![2, 10, 10]);
        assert_eq!(stored_as(&sharded, "", ""), (vec![4, 20, 30], kept.clone()));
        assert_eq!(stored_as(&sharded, "time=8", ""), (vec![8, 20, 30], kept));
        assert_eq!(stored_as(&sharded, "time=3", ""), (vec![3, 20, 30], None));
        let (_, inner) = stored_as(&sharded, "time=8", "lat=5");
        assert_eq!(inner, Some(vec![2, 5, 10]));
        let (_, inner) = stored_as(&sharded, "time=3", "lat=5");
        assert_eq!(inner, Some(vec![3, 5, 30]));
    }
}
