//! Makes a record for each row of a suite from what a child reported.

use super::process::Reported;
use crate::child::Job;
use crate::recorder::add_note;
use esker_bench_api::results::{Counts, Record};

/// First words of the error of a row that did not run because of an earlier failure.
pub(super) const NOT_RUN: &str = "not run";

/// Returns a record for every row.
pub(super) fn complete(job: &Job<'_>, reported: Reported) -> Vec<Record> {
    let mut records = reported.records;
    let failure = reported.failure.unwrap_or_else(|| "the process did not report this row".to_owned());
    let (mut culprit, mut what) = (reported.open_row, "failed");
    if let Some(mut record) = reported.unchecked {
        culprit = Some(record.row.clone());
        // An engine that fails by itself while its row is checked has no value. If the lab stopped it, it was
        // only slow.
        if reported.was_stopped {
            what = "was measured, and what follows it did not end";
            add_note(
                &mut record,
                &format!("what follows the row, its check included, did not end: {failure}"),
            );
            records.push(record);
        }
    }
    for row in job.rows() {
        if records.iter().any(|record| record.row == row.name) {
            continue;
        }
        let error = match &culprit {
            Some(culprit) if *culprit != row.name => format!("{NOT_RUN}: {culprit} {what}"),
            _ => failure.clone(),
        };
        records.push(Record {
            row: row.name,
            unit: row.unit,
            better: row.better,
            counts: Counts { ops: row.ops, ..Counts::default() },
            error: Some(error),
            ..job.blank()
        });
    }
    records
}

#[cfg(test)]
mod tests {
    use super::super::tests::job;
    use super::*;

    #[test]
    fn a_measured_row_keeps_its_value_if_the_lab_stops_what_follows_and_not_if_the_engine_fails() {
        let job = job();
        let reported = |was_stopped| Reported {
            unchecked: Some(Record { row: "load".to_owned(), value: Some(1.0), ..job.blank() }),
            failure: Some("out of time".to_owned()),
            was_stopped,
            ..Reported::default()
        };
        let slow = complete(&job, reported(true));
        assert_eq!((slow[0].value, slow[0].error.as_ref()), (Some(1.0), None));
        assert!(slow[0].note.contains("out of time"), "{slow:?}");
        assert!(slow[1].error.as_ref().unwrap().starts_with(NOT_RUN), "{slow:?}");
        let broken = complete(&job, reported(false));
        assert_eq!((broken[0].value, broken[0].error.as_deref()), (None, Some("out of time")));
        assert_eq!(broken.len(), 2);
    }
}
