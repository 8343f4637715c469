//! The torus in its two modes: one traffic must take nearly the same time in both. The papers
//! report at most 5.4 % between Proteus's two modes, "typically less than 0.1 %", over experiments
//! "with thousands of tiny messages" and "with many large messages" (Kotz, TOCS 1997, section 4.1).
//! The measure is theirs: the time of the whole experiment.
//!
//! `cargo test --release -p penstock-sim --test all network_contention -- --nocapture` prints the
//! times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use penstock_sim::network::{Contention, TorusParameters, parts};
use penstock_sim::{Random, Span, Time, Torus};

/// The traffic of each of 16 I/O processors.
#[derive(Clone, Copy)]
struct Traffic {
    name: &'static str,
    messages: u64,
    bytes: u64,
    /// The processor's own work for each message, before it goes.
    work_us: f64,
    /// Whether the processor waits for an answer, of 8 bytes, to each message.
    answered: bool,
    to: To,
}

#[derive(Clone, Copy)]
enum To {
    Anyone,
    InTurn,
    One,
}

fn seconds(traffic: &Traffic, contention: Contention, seed: u64) -> f64 {
    let parameters = TorusParameters {
        contention,
        ..parts::kotz_torus()
    };
    let mut torus = Torus::new(&parameters, Random::of(seed, 100)).unwrap();
    let mut randoms: Vec<Random> = (0..16).map(|sender| Random::of(seed, sender)).collect();
    let work = Span::from_us_f64(traffic.work_us);
    let mut ready: BinaryHeap<_> = (0..16u32)
        .map(|sender| Reverse((Time::ZERO, sender, 0)))
        .collect();
    let mut end = Time::ZERO;
    while let Some(Reverse((now, sender, sent))) = ready.pop() {
        if sent == traffic.messages {
            continue;
        }
        // Processor 0 is the driver; I/O processors are 1 to 16, compute processors 17 to 32.
        let client = match traffic.to {
            To::Anyone => randoms[sender as usize].below(16),
            To::InTurn => (u64::from(sender) + sent) % 16,
            To::One => 0,
        };
        let (from, to) = (1 + sender, 17 + client as u32);
        let there = torus.deliver(now, from, to, traffic.bytes);
        end = end.max(there.arrival);
        let free = match traffic.answered {
            true => torus.deliver(there.arrival, to, from, 8).arrival,
            false => there.sender.end,
        };
        // Up to a microsecond of chance keeps senders out of step, as real work does.
        let chance = Span::from_ns(randoms[sender as usize].below(1000));
        ready.push(Reverse((free + work + chance, sender, sent + 1)));
    }
    end.as_seconds_f64()
}

/// Prints the exact and stochastic seconds, each the mean of five seeds. Returns the difference, in
/// percent.
fn compare(traffic: &Traffic) -> f64 {
    let mean = |contention| {
        (0..5)
            .map(|seed| seconds(traffic, contention, seed))
            .sum::<f64>()
            / 5.0
    };
    let (exact, stochastic) = (mean(Contention::Exact), mean(Contention::Stochastic));
    let off = (stochastic / exact - 1.0) * 100.0;
    let name = traffic.name;
    println!("{name:<34} {exact:.5} s exact, {stochastic:.5} s stochastic, {off:+.2} %");
    off
}

/// Makes `messages` of `bytes`, each after `work_us`, to clients at random, unanswered.
fn traffic(name: &'static str, messages: u64, bytes: u64, work_us: f64) -> Traffic {
    Traffic {
        name,
        messages,
        bytes,
        work_us,
        answered: false,
        to: To::Anyone,
    }
}

#[test]
fn the_modes_agree_as_the_papers_say() {
    let small = traffic("8 B, Memput by Memput", 20_000, 8, 5.0);
    let block = traffic("8 KB at disk speed, at random", 80, 8192, 3700.0);
    let large = traffic("8 KB, Memput by Memput, at random", 2_000, 8192, 130.0);
    for traffic in [
        small,
        Traffic {
            name: "8 B, answered",
            answered: true,
            to: To::InTurn,
            ..small
        },
        traffic("1 KB, every 15 us", 5_000, 1024, 10.0),
        block,
        Traffic {
            name: "8 KB at disk speed, in turn",
            to: To::InTurn,
            ..block
        },
        Traffic {
            name: "8 KB at disk speed, all to one",
            to: To::One,
            ..block
        },
        large,
        Traffic {
            name: "8 KB, answered, a third busy",
            work_us: 46.0,
            answered: true,
            to: To::InTurn,
            ..large
        },
        Traffic {
            name: "8 KB, all to one",
            messages: 200,
            work_us: 46.0,
            to: To::One,
            ..large
        },
    ] {
        let off = compare(&traffic);
        assert!(off.abs() <= 5.4, "{}: {off} %", traffic.name);
    }
}

/// Near saturation senders do little but send, more than the disks of those experiments allow, to
/// the point where worms block each other. The stochastic mode is too quick there, by a tenth. The
/// bounds are measured here, not reported by the papers.
#[test]
fn the_modes_part_near_saturation() {
    let half = traffic("8 KB, half busy, at random", 2_000, 8192, 46.0);
    for traffic in [
        half,
        Traffic {
            name: "8 KB, answered, at random",
            answered: true,
            ..half
        },
        traffic("8 KB, always busy, at random", 2_000, 8192, 0.0),
    ] {
        let off = compare(&traffic);
        assert!((-13.0..=5.4).contains(&off), "{}: {off} %", traffic.name);
    }
}
