//! `esker-bench compare A.jsonl B.jsonl`: what changed between two runs of the same rows, and whether it is
//! more than noise.
//!
//! ```text
//! pairs (a_i, b_i) of a run -> ratios b_i / a_i -> geometric mean, sign-flip test of its logarithm
//! ```
//!
//! - Runs are paired by number. The two sides should take turns on one machine, so that disturbances of both
//!   cancel out in the ratio. Records have start times, so the table states if the sides did not take turns.
//! - The test flips the signs of the logarithms in all ways (or in 20,000 random ways) and counts how many
//!   give a mean as far from zero. It assumes only that the noise is alike on both sides. With fewer than 6
//!   pairs the smallest possible p is above 0.05 x 2/3, so the table says "too few".
//! - Each row is tested separately. Of many unchanged rows some will seem changed, so the table says how many
//!   to expect.

use std::collections::BTreeMap;

use esker_bench_api::generate::rng::Rng;
use esker_bench_api::results::{Better, Record};

/// With fewer pairs, nothing can be significant at [`P_MAX`].
const PAIRS_MIN: usize = 6;
const P_MAX: f64 = 0.05;
/// Up to this number of pairs all flips are tried.
const EXACT_PAIRS_MAX: usize = 14;
const RANDOM_FLIPS: u64 = 20_000;

/// One row of one engine on both sides.
#[derive(Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) name: String,
    /// Geometric mean of b / a.
    pub(crate) ratio: f64,
    pub(crate) pairs: usize,
    pub(crate) p: f64,
    /// Whether the two sides took turns; `None` if their times are unknown, or with one pair.
    pub(crate) in_turns: Option<bool>,
    pub(crate) verdict: &'static str,
}

/// Ratios, and the start times of both sides of each.
type Pairs = (Vec<f64>, Vec<[u64; 2]>);

/// Returns every row that both sides have.
pub(crate) fn changes(a: &[Record], b: &[Record]) -> Vec<Change> {
    let key = |record: &Record| {
        (record.suite.clone(), record.scale.clone(), record.row.clone(), record.engine.clone(), record.run)
    };
    let after: BTreeMap<_, _> = b.iter().map(|record| (key(record), record)).collect();
    let mut order: Vec<(String, Better, Pairs)> = Vec::new();
    for record in a {
        let Some(other) = after.get(&key(record)) else { continue };
        let Some((value, after)) = record.value.zip(other.value) else { continue };
        if value <= 0.0 || after <= 0.0 {
            continue;
        }
        let name = format!("{} / {} / {} / {}", record.suite, record.scale, record.engine, record.row);
        let ratio = (after / value).ln();
        let starts = [record.setting.started_unix_ms, other.setting.started_unix_ms];
        match order.iter_mut().find(|(known, ..)| *known == name) {
            Some((.., (ratios, times))) => {
                ratios.push(ratio);
                times.push(starts);
            }
            None => order.push((name, record.better, (vec![ratio], vec![starts]))),
        }
    }
    let change = |(name, better, (ratios, times)): (String, Better, Pairs)| Change {
        in_turns: took_turns(&times),
        ..change(name, better, &ratios)
    };
    order.into_iter().map(change).collect()
}

/// Returns whether no other pair began between the two starts of each pair.
fn took_turns(pairs: &[[u64; 2]]) -> Option<bool> {
    if pairs.len() < 2 || pairs.iter().flatten().any(|start| *start == 0) {
        return None;
    }
    let mut starts: Vec<(u64, usize)> =
        pairs.iter().enumerate().flat_map(|(n, pair)| pair.map(|start| (start, n))).collect();
    starts.sort_unstable();
    Some(starts.chunks(2).all(|pair| pair[0].1 == pair[1].1))
}

fn change(name: String, better: Better, logs: &[f64]) -> Change {
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let p = p_of(logs);
    let is_better = (mean < 0.0) == (better == Better::Lower);
    let verdict = match (logs.len() < PAIRS_MIN, p <= P_MAX, is_better) {
        (true, ..) => "too few pairs",
        (_, false, _) => "no difference",
        (.., true) => "better",
        (.., false) => "worse",
    };
    Change { name, ratio: mean.exp(), pairs: logs.len(), p, in_turns: None, verdict }
}

/// Returns the part of all sign flips whose mean is at least as far from zero.
fn p_of(logs: &[f64]) -> f64 {
    let observed = logs.iter().sum::<f64>().abs() * (1.0 - 1e-12);
    let is_as_far = |signs: u64| {
        let flipped =
            logs.iter().enumerate().map(|(i, log)| if signs >> (i % 64) & 1 == 1 { -log } else { *log });
        flipped.sum::<f64>().abs() >= observed
    };
    if logs.len() <= EXACT_PAIRS_MAX {
        let all = 1_u64 << logs.len();
        (0..all).filter(|signs| is_as_far(*signs)).count() as f64 / all as f64
    } else {
        let mut rng = Rng::new(1);
        let hits = (0..RANDOM_FLIPS).filter(|_| is_as_far(rng.next_u64())).count();
        (hits + 1) as f64 / (RANDOM_FLIPS + 1) as f64
    }
}

/// Formats the table.
pub(crate) fn table(changes: &[Change]) -> String {
    let width = changes.iter().map(|change| change.name.len()).max().unwrap_or(0);
    let mut out = format!("{:<width$}  after/before  pairs      p\n", "suite / scale / engine / row");
    for change in changes {
        out += &format!(
            "{:<width$}  {:>12.3}  {:>5}  {:>5.3}  {}\n",
            change.name, change.ratio, change.pairs, change.p, change.verdict
        );
    }
    let tested = changes.iter().filter(|change| change.pairs >= PAIRS_MIN).count();
    let differing = changes.iter().filter(|change| matches!(change.verdict, "better" | "worse")).count();
    if tested > 1 {
        let by_chance = tested as f64 * P_MAX;
        out += &format!(
            "{differing} of {tested} rows differ at p <= {P_MAX}; {by_chance:.2} would by chance if none had changed\n"
        );
    }
    let count = |wanted| changes.iter().filter(|change| change.in_turns == wanted).count();
    match (count(Some(false)), count(None)) {
        (0, 0) => {}
        (0, unknown) => out += &format!("whether the two sides took turns is not known of {unknown} rows\n"),
        (not, _) => {
            out += &format!(
                "the two sides did not take turns in {not} rows: what changed on the machine meanwhile looks like a difference\n"
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::tests::record;

    fn runs(times: &[f64]) -> Vec<Record> {
        (1..).zip(times).map(|(run, time)| record("esker", "bulk load", run, Some(*time))).collect()
    }

    #[test]
    fn a_change_beyond_the_noise_is_seen_and_noise_is_not() {
        let before = runs(&[1.0, 1.2, 0.9, 1.1, 1.3, 1.0, 0.8, 1.0]);
        let faster = runs(&[0.8, 0.97, 0.7, 0.9, 1.0, 0.82, 0.66, 0.78]);
        let same = runs(&[1.1, 1.1, 0.95, 1.0, 1.35, 0.9, 0.82, 1.0]);
        let change = &changes(&before, &faster)[0];
        assert_eq!((change.verdict, change.pairs), ("better", 8));
        assert!((change.p - 2.0 / 256.0).abs() < 1e-9 && (0.7..0.85).contains(&change.ratio), "{change:?}");
        assert_eq!(changes(&faster, &before)[0].verdict, "worse");
        assert_eq!(changes(&before, &same)[0].verdict, "no difference");
        assert_eq!(changes(&before[..3], &faster[..3])[0].verdict, "too few pairs");
        assert!(table(&changes(&before, &faster)).contains("better"));
    }

    #[test]
    fn sides_that_did_not_take_turns_are_reported() {
        let at = |times: &[u64]| {
            let mut records = runs(&[1.0, 1.1, 1.2]);
            records.iter_mut().zip(times).for_each(|(record, time)| record.setting.started_unix_ms = *time);
            records
        };
        let in_turns = |before: &[u64], after: &[u64]| {
            let changes = changes(&at(before), &at(after));
            (changes[0].in_turns, table(&changes).contains("did not take turns"))
        };
        assert_eq!(in_turns(&[10, 31, 50], &[20, 30, 60]), (Some(true), false));
        assert_eq!(in_turns(&[10, 20, 30], &[40, 50, 60]), (Some(false), true));
        assert_eq!(in_turns(&[0, 0, 0], &[40, 50, 60]), (None, false));
    }

    #[test]
    fn what_chance_alone_would_show_is_stated() {
        let all = |factor: f64| {
            let rows = ["bulk load", "random reads", "len()"];
            let runs = |row: &'static str| {
                (1..=6)
                    .map(move |run| record("esker", row, run, Some(factor * (1.0 + f64::from(run) / 10.0))))
            };
            rows.into_iter().flat_map(runs).collect::<Vec<_>>()
        };
        let text = table(&changes(&all(1.0), &all(0.8)));
        assert!(text.contains("3 of 3 rows differ at p <= 0.05; 0.15 would by chance"), "{text}");
        let one = runs(&[1.0, 1.2, 0.9, 1.1, 1.3, 1.0]);
        assert!(!table(&changes(&one, &one)).contains("by chance"));
    }

    #[test]
    fn many_pairs_are_tested_by_random_flips() {
        let before: Vec<f64> = (0..40).map(|i| 1.0 + f64::from(i % 7) / 10.0).collect();
        let after: Vec<f64> = before.iter().map(|time| time * 1.05).collect();
        let change = &changes(&runs(&before), &runs(&after))[0];
        assert_eq!(change.verdict, "worse");
        assert!(change.p < 0.001, "{change:?}");
    }
}
