//! Finds the engines of a row that did not take turns, from the start times of records.
//!
//! ```text
//! started_unix_ms:  esker lmdb redb | another group, run or suite | lmdb      the last one ran apart
//! ```
//!
//! In one run, the turns of all engines in one group follow each other. If something else of the report began
//! between them, the largest part counts as measured in turn, and the rest as measured apart. A pause alone
//! cannot be seen.

use std::collections::BTreeMap;

use esker_bench_api::results::Record;

use crate::report::summary::Summary;
use crate::suites;

/// Suite, scale, run and group.
type Turn<'a> = (&'a str, &'a str, u32, usize);

/// Returns the records that were measured apart from the others of their group and run.
pub(super) fn apart(records: &[Record]) -> Vec<&Record> {
    let groups = Groups::of(records);
    let mut begun: Vec<&Record> =
        records.iter().filter(|record| record.setting.started_unix_ms > 0).collect();
    begun.sort_by_key(|record| record.setting.started_unix_ms);
    let mut parts: BTreeMap<Turn<'_>, Vec<Vec<&Record>>> = BTreeMap::new();
    let mut last = None;
    for record in begun {
        let turn = (record.suite.as_str(), record.scale.as_str(), record.run, groups.group(record));
        let of_turn = parts.entry(turn).or_default();
        match of_turn.last_mut() {
            Some(part) if last == Some(turn) => part.push(record),
            _ => of_turn.push(vec![record]),
        }
        last = Some(turn);
    }
    parts.into_values().flat_map(all_but_the_largest).collect()
}

/// Names the engines that were measured apart, with their number of rows. Returns `None` if all engines took
/// turns.
pub(super) fn apart_text(summary: &Summary) -> Option<String> {
    let mut rows: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, engine) in &summary.apart {
        *rows.entry(engine).or_default() += 1;
    }
    let engines: Vec<String> = rows.iter().map(|(engine, rows)| format!("{engine} ({rows} rows)")).collect();
    let text = format!("{}, not in turn with the others: {}", summary.suite, engines.join(", "));
    (!engines.is_empty()).then_some(text)
}

/// Returns all parts but the largest; among equals, the first is kept.
fn all_but_the_largest(mut parts: Vec<Vec<&Record>>) -> impl Iterator<Item = &Record> {
    parts.reverse();
    parts.sort_by_key(Vec::len);
    parts.pop();
    parts.into_iter().flatten()
}

/// The group of each row, as its suite lists them.
struct Groups<'a>(BTreeMap<(&'a str, &'a str), BTreeMap<String, usize>>);

impl<'a> Groups<'a> {
    fn of(records: &'a [Record]) -> Self {
        let mut groups = BTreeMap::new();
        for record in records {
            let (suite, scale) = (record.suite.as_str(), record.scale.as_str());
            groups.entry((suite, scale)).or_insert_with(|| {
                suites::rows_of(suite, scale).into_iter().map(|row| (row.name, row.group)).collect()
            });
        }
        Self(groups)
    }

    /// Returns 0 for rows that the suite does not have.
    fn group(&self, record: &Record) -> usize {
        let of_suite = self.0.get(&(record.suite.as_str(), record.scale.as_str()));
        of_suite.and_then(|groups| groups.get(&record.row)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::tests::record;
    use esker_bench_api::results::Setting;

    fn begun(suite: &str, engine: &str, row: &str, started_unix_ms: u64) -> Record {
        let setting = Setting { started_unix_ms, ..Setting::default() };
        Record { suite: suite.to_owned(), setting, ..record(engine, row, 1, Some(1.0)) }
    }

    #[test]
    fn what_began_behind_another_group_or_suite_is_marked() {
        let mut records = vec![
            begun("open", "esker", "open clean", 10),
            begun("open", "redb", "open clean", 20),
            begun("open", "esker", "open after kill", 30),
            begun("open", "redb", "open after kill", 40),
            begun("int", "esker", "bulk load", 50),
        ];
        assert!(apart(&records).is_empty(), "{:?}", apart(&records));
        records.push(begun("open", "lmdb", "open clean", 45));
        records.push(begun("open", "lmdb", "open after kill", 60));
        let found: Vec<_> =
            apart(&records).into_iter().map(|record| (record.engine.as_str(), record.row.as_str())).collect();
        assert_eq!(found, [("lmdb", "open clean"), ("lmdb", "open after kill")]);
        let summaries = Summary::all(&records);
        let (open, int) = (&summaries[0], &summaries[1]);
        let marked = |row: usize| (0..3).filter(|at| open.is_apart(&open.rows[row], *at)).collect::<Vec<_>>();
        assert_eq!((marked(0), marked(1), int.apart.len()), (vec![1], vec![1], 0));
    }

    #[test]
    fn rows_of_one_group_and_runs_in_a_row_are_in_turn() {
        let rows = ["bulk load", "len()", "random reads"];
        let mut records = Vec::new();
        for run in [1, 2] {
            for engine in ["esker", "lmdb"] {
                records.extend(rows.map(|row| Record { run, ..begun("redb", engine, row, 0) }));
            }
        }
        for (record, at) in records.iter_mut().zip(1..) {
            record.setting.started_unix_ms = at;
        }
        assert!(apart(&records).is_empty());
        assert!(Summary::all(&records)[0].has_times);
        records[0].setting.started_unix_ms = 0;
        assert!(!Summary::all(&records)[0].has_times);
    }
}
