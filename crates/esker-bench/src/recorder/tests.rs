//! Tests of the recorder, and helpers with which other tests read its messages.

use std::sync::{Arc, Mutex};

use esker_bench_api::OpenOptions;

use super::*;
use crate::engines;
use crate::report::summary::tests::record;

/// Messages of a recorder.
#[derive(Clone, Default)]
pub(crate) struct Sent(Arc<Mutex<Vec<u8>>>);

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sent {
    /// Returns all finished rows, each as it was sent last.
    pub(crate) fn records(&self) -> Vec<Record> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let mut records: Vec<Record> = Vec::new();
        for line in text.lines() {
            let Message::Row(record) = serde_json::from_str(line).unwrap() else { continue };
            match records.iter_mut().find(|known| known.row == record.row) {
                Some(known) => *known = *record,
                None => records.push(*record),
            }
        }
        records
    }

    /// Returns row and error of each record.
    fn rows(&self) -> Vec<(String, Option<String>)> {
        self.records().into_iter().map(|record| (record.row, record.error)).collect()
    }

    /// Returns the rows that began.
    pub(crate) fn begun(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let messages = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let begun = |message| match message {
            Message::Begin(row) => Some(row),
            _ => None,
        };
        messages.filter_map(begun).collect()
    }

    /// Returns the progress messages.
    pub(crate) fn progress(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let messages = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let progress = |message| match message {
            Message::Progress(text) => Some(text),
            _ => None,
        };
        messages.filter_map(progress).collect()
    }

    /// Returns the kind of each message.
    fn kinds(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
    }
}

fn recorder(dir: &Path, sent: &Sent) -> Recorder {
    let rows = vec![Row::time("load".to_owned(), String::new())];
    let (blank, out) = (record("e", "", 1, Some(0.0)), Box::new(sent.clone()));
    Recorder::new(rows, blank, dir, out, false, Duration::ZERO)
}

#[test]
fn a_row_is_sent_before_its_check_and_again_after_it() {
    let (dir, sent) = (tempfile::tempdir().unwrap(), Sent::default());
    let mut recorder = recorder(dir.path(), &sent);
    recorder.row("load", || Ok(Outcome::default())).unwrap();
    assert_eq!(sent.kinds(), ["begin", "measured"]);
    recorder.check(|| Err::<(), _>(Failure::Wrong("bad".to_owned()))).unwrap();
    recorder.finish().unwrap();
    assert_eq!(sent.kinds(), ["begin", "measured", "row", "done"]);
    assert_eq!(sent.rows(), [("load".to_owned(), Some("wrong answer: bad".to_owned()))]);
}

#[test]
fn a_failed_check_voids_rows_since_the_last_passed_check() {
    let (dir, sent) = (tempfile::tempdir().unwrap(), Sent::default());
    let names = ["load", "mix", "reads", "update", "compact", "reads again", "late"];
    let rows = names.map(|name| Row::time(name.to_owned(), String::new())).to_vec();
    let (blank, out) = (record("e", "", 1, None), Box::new(sent.clone()));
    let blank = Record { error: None, ..blank };
    let mut recorder = Recorder::new(rows, blank, dir.path(), out, false, Duration::ZERO);
    let wrote = || Ok(Outcome { user_written_bytes: 1, ..Outcome::default() });
    let bad = || Err::<(), _>(Failure::Wrong("bad".to_owned()));
    recorder.row("load", wrote).unwrap();
    recorder.check(|| Ok(())).unwrap();
    recorder.row("mix", || Ok(Outcome { commits: Some(7), ..Outcome::default() })).unwrap();
    recorder.row("reads", || Ok(Outcome::default())).unwrap();
    // This does not check what the mix wrote.
    recorder.check_row(|| Ok(())).unwrap();
    recorder.row("update", wrote).unwrap();
    recorder.row("compact", || Ok(Outcome { rewrites: true, ..Outcome::default() })).unwrap();
    recorder.row("reads again", || Ok(Outcome::default())).unwrap();
    recorder.check(bad).unwrap();
    recorder.row("late", wrote).unwrap();
    recorder.check_row(bad).unwrap();
    recorder.finish().unwrap();
    let void: Vec<_> = sent.rows().into_iter().filter(|row| row.1.is_some()).map(|row| row.0).collect();
    assert_eq!(void, ["mix", "update", "compact", "reads again", "late"]);
    assert!(sent.records().iter().all(|record| record.value.is_none() == record.error.is_some()));
}

#[test]
fn an_engine_that_cannot_read_what_it_wrote_has_no_rows_of_it() {
    let (dir, sent) = (tempfile::tempdir().unwrap(), Sent::default());
    let rows = ["load", "reads"].map(|name| Row::time(name.to_owned(), String::new())).to_vec();
    let (blank, out) = (record("e", "", 1, None), Box::new(sent.clone()));
    let blank = Record { error: None, ..blank };
    let mut recorder = Recorder::new(rows, blank, dir.path(), out, false, Duration::ZERO);
    recorder.row("load", || Ok(Outcome { user_written_bytes: 1, ..Outcome::default() })).unwrap();
    recorder.row("reads", || Ok(Outcome::default())).unwrap();
    let damaged = || Err::<(), _>(Failure::Engine("a damaged page".to_owned()));
    assert!(matches!(recorder.check(damaged), Err(Failure::Engine(_))));
    let expected = Failure::Engine("a damaged page".to_owned()).to_string();
    assert_eq!(sent.rows(), [("load".to_owned(), Some(expected))]);
    assert_eq!(sent.records()[0].value, None);
}

#[test]
fn what_the_drain_uses_is_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = recorder(dir.path(), &Sent::default());
    recorder.row("load", || Ok(Outcome::default())).unwrap();
    let measured = recorder.pending.as_ref().unwrap().usage.cpu_s;
    let before = Usages::now(dir.path());
    // A busy machine may give this loop little time.
    let mut used = Usage::default();
    while used.cpu_s < 0.05 {
        used = Usage::default();
        before.add_since(dir.path(), &mut used);
    }
    let peaks = Peaks { anon_bytes: 0, file_bytes: 1 << 39, disk_bytes: 1 << 40 };
    recorder.add_drain(1.0, &before, peaks);
    let record = recorder.pending.unwrap();
    assert_eq!((record.usage.peak_file_bytes, record.usage.peak_disk_bytes), (1 << 39, 1 << 40));
    assert!(record.usage.cpu_s > measured + 0.02);
    assert_eq!(record.detail.unwrap().drain_s, Some(1.0));
}

#[test]
fn a_row_says_that_background_work_went_on() {
    let (dir, sent) = (tempfile::tempdir().unwrap(), Sent::default());
    let rows = ["load", "reads"].map(|name| Row::time(name.to_owned(), String::new())).to_vec();
    let (blank, out) = (record("e", "", 1, Some(0.0)), Box::new(sent.clone()));
    let mut recorder = Recorder::new(rows, blank, dir.path(), out, false, Duration::from_millis(40));
    // Three idle windows do not fit.
    recorder.idle_wait_max = Duration::from_millis(60);
    let store = engines::find("redb").unwrap().open(dir.path(), &OpenOptions::with_cache(1 << 20)).unwrap();
    recorder.drain_by(|deadline| store.drain(deadline)).unwrap();
    recorder.row("load", || Ok(Outcome::default())).unwrap();
    recorder.flush().unwrap();
    recorder.drain_by(|deadline| store.drain(deadline)).unwrap();
    recorder.row("reads", || Ok(Outcome { note: "warm".to_owned(), ..Outcome::default() })).unwrap();
    recorder.drain_by(|deadline| store.drain(deadline)).unwrap();
    recorder.finish().unwrap();
    let notes: Vec<_> = sent.records().into_iter().map(|record| record.note).collect();
    let note = "background work went on after 0.06 s";
    assert_eq!(notes, [note.to_owned(), format!("{note}; warm; {note}")]);
}

#[test]
fn what_a_load_takes_stands_with_the_first_row_behind_it() {
    let (dir, sent) = (tempfile::tempdir().unwrap(), Sent::default());
    let rows = ["reads", "scans"].map(|name| Row::time(name.to_owned(), String::new())).to_vec();
    let (blank, out) = (record("e", "", 1, Some(0.0)), Box::new(sent.clone()));
    // Other tests decide whether this process is idle, so the wait is short.
    let mut recorder = Recorder::new(rows, blank, dir.path(), out, false, Duration::from_millis(1))
        .within(Some(Duration::from_millis(100)));
    let wait = Duration::from_millis(20);
    recorder
        .load("items", 7, |step_progress| {
            std::thread::sleep(wait);
            step_progress.at(7, Instant::now())
        })
        .unwrap();
    let drain = |recorder: &mut Recorder, wait| {
        recorder.drain_by(|_| {
            std::thread::sleep(wait);
            Ok(())
        })
    };
    drain(&mut recorder, 2 * wait).unwrap();
    // The drain of an opening does not belong to the load.
    drain(&mut recorder, Duration::ZERO).unwrap();
    let detail = Detail { figures: [("items when it began".to_owned(), 7.0)].into(), ..Detail::default() };
    let outcome = || Outcome { detail: Some(Box::new(detail.clone())), ..Outcome::default() };
    recorder.row("reads", || Ok(outcome())).unwrap();
    recorder.row("scans", || Ok(Outcome::default())).unwrap();
    recorder.finish().unwrap();
    assert_eq!(sent.progress(), ["7 of 7 items written"]);
    let records = sent.records();
    let figures = &records[0].detail.as_ref().unwrap().figures;
    assert!(figures["load s"] >= 0.02 && figures["load drain s"] >= 0.04, "{figures:?}");
    assert!(figures["load written bytes"] >= 0.0 && figures["items when it began"] == 7.0);
    assert!(records[1].detail.is_none());
}

#[test]
fn an_engine_whose_own_wait_has_no_end_gets_a_quarter_of_the_step() {
    let (dir, sent) = (tempfile::tempdir().unwrap(), Sent::default());
    let mut recorder = recorder(dir.path(), &sent).within(Some(Duration::from_millis(400)));
    recorder.row("load", || Ok(Outcome::default())).unwrap();
    let start = Instant::now();
    recorder
        .drain_by(|deadline| {
            let wait = deadline.duration_since(start);
            assert!(wait <= Duration::from_secs(10), "{wait:?}");
            std::thread::sleep(wait);
            Ok(())
        })
        .unwrap();
    assert!(start.elapsed() >= Duration::from_millis(100));
    recorder.finish().unwrap();
    assert_eq!(sent.records()[0].note, "background work went on after 0.1 s");
}

#[test]
fn without_groundwork_the_rest_of_the_group_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let rows = ["load", "reads", "scans"].map(|name| Row::time(name.to_owned(), String::new())).to_vec();
    for (fails, expected) in [(false, [false; 3]), (true, [true; 3])] {
        let sent = Sent::default();
        let blank = record("e", "", 1, Some(0.0));
        let out = Box::new(sent.clone());
        let mut recorder = Recorder::new(rows.clone(), blank, dir.path(), out, false, Duration::ZERO);
        let work = || if fails { Err(Failure::Wrong("bad".to_owned())) } else { Ok(Outcome::default()) };
        recorder.row("load", work).unwrap();
        if recorder.is_groundwork_there().unwrap() {
            recorder.row("reads", || Ok(Outcome::default())).unwrap();
            recorder.row("scans", || Ok(Outcome::default())).unwrap();
        }
        recorder.finish().unwrap();
        let found = sent.rows();
        assert_eq!(found.iter().map(|row| row.1.is_some()).collect::<Vec<_>>(), expected, "{found:?}");
    }
}
