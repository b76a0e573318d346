//! Tests the offline tools and read-only openings on the files that a process has left, before the next one
//! opens them.
//!
//! ```text
//!   the disk before an opening --kill--> image --check_offline, dump--> no problems, no changes
//!                                          |---open_read_only--> the opening's state, no changes
//!                                          `---repair--> another directory --open--> the opening's state
//! ```
//!
//! - `check_offline` finds no problem in the state after a crash and counts the keys. `dump` shows no damage
//!   in needed files, except a torn end of the log. Neither changes anything. A clean close after a run
//!   without faults leaves no unneeded files.
//! - `open_read_only` shows what the opening found, finds no problem and refuses writes. It changes nothing.
//! - `repair` reports no loss, and creates a database with the contents that the opening found.
//!
//! The seed and the number of an opening alone decide whether it is inspected, so the operations do not
//! depend on it.

use std::sync::Arc;

use esker::{CheckReport, DumpOptions, DumpValue, Error};
use esker_env::{Env, MemFs};
use fastrand::Rng;

use super::write::SHORT_IDS;
use super::{DIR, World};
use crate::judge::read;
use crate::model::state::State;
use crate::op::Opening;

/// One opening in this many is inspected.
const ONE_IN: u64 = 20;
/// Directory of the repaired database.
const REPAIRED: &str = "repaired";

impl World {
    /// Counts an opening. Returns whether it is inspected.
    pub(super) fn is_inspected(&mut self) -> bool {
        self.process.openings += 1;
        let drawn = Rng::with_seed(self.seed.rotate_left(32) ^ self.process.openings).u64(0..ONE_IN);
        // The tools count and read expired entries.
        !self.expires && (self.mode.inspects_all || drawn == 0)
    }

    /// Tests the tools on the disk before the opening that has just succeeded. `is_tidy` says that the
    /// previous process met no fault and closed the database.
    pub(super) fn inspect(&mut self, image: &MemFs, is_tidy: bool, opening: Opening) {
        image.set_capacity(None);
        self.tally.inspected += 1;
        let keys = self.machine.keys.clone();
        let env = Env { keys, ..Env::simulated(Arc::new(image.clone()), self.seed) };
        let report = match self.builder(opening).env(env.clone()).check_offline(DIR) {
            Ok(report) => report,
            Err(Error::NotFound(_)) => {
                let is_new = self.history.newest().digest() == State::new().digest();
                return assert!(is_new, "check_offline finds no database where there is one");
            }
            Err(error) => panic!("check_offline: {error}"),
        };
        assert!(report.problems.is_empty(), "check_offline finds {:#?}", report.problems);
        let has_leftovers = report.notes.iter().any(|note| note.contains("is not needed"));
        assert!(!(is_tidy && has_leftovers), "a clean close leaves {:#?}", report.notes);
        let live_keys = self.history.newest().live_keys();
        let is_right = match self.has_guests() {
            // Records of guests' commits count as well.
            true => report.live_keys >= Some(live_keys),
            false => report.live_keys == Some(live_keys),
        };
        let counted = report.live_keys;
        assert!(is_right, "check_offline counts {counted:?} keys, not {live_keys}");
        if let Some(damage) = dumped_damage(&env, image, &report) {
            panic!("dump shows damage in {damage}; check_offline notes {:#?}", report.notes);
        }
        self.check_read_only(&env, opening);
        assert_eq!(image.ops(), 0, "reading has changed something");
        self.check_repair(&env, opening);
    }

    /// Opens the database to read it and compares what it shows.
    fn check_read_only(&mut self, env: &Env, opening: Opening) {
        let opened = self.builder(opening).env(env.clone()).open_read_only(DIR);
        let db = opened.unwrap_or_else(|error| panic!("open_read_only fails: {error}"));
        let found = read::contents(&db, false);
        let found = found.unwrap_or_else(|error| panic!("it cannot be read: {error}"));
        if let Some(difference) = self.history.newest().difference(&found) {
            panic!("open_read_only shows something else: {difference}");
        }
        let report = db.check().unwrap_or_else(|error| panic!("check of a read-only opening: {error}"));
        assert!(report.problems.is_empty(), "check of a read-only opening: {:#?}", report.problems);
        let written = db.default_keyspace().put("key", "value");
        assert!(matches!(written, Err(Error::ReadOnly { .. })), "{written:?}");
        self.tally.read_only += 1;
    }

    /// Repairs the database and compares the result.
    fn check_repair(&mut self, env: &Env, opening: Opening) {
        let builder = || self.builder(opening).env(env.clone());
        let report = builder().repair(DIR, REPAIRED);
        let report = report.unwrap_or_else(|error| panic!("repair fails: {error}"));
        assert!(report.losses.is_empty(), "repair loses {:#?}", report.losses);
        let opened = builder().create_if_missing(false).open(REPAIRED);
        let db = opened.unwrap_or_else(|error| panic!("what was repaired cannot be opened: {error}"));
        self.tally.long_ids += u64::from(report.keyspaces.iter().any(|k| k.id.get() >= SHORT_IDS));
        let found = read::contents(&db, false);
        let found = found.unwrap_or_else(|error| panic!("what was repaired cannot be read: {error}"));
        if let Some(difference) = self.history.newest().difference(&found) {
            panic!("repair makes something else: {difference}; its notes: {:#?}", report.notes);
        }
    }
}

/// Returns the first unexpected damage in a dump: file, offset and description.
fn dumped_damage(env: &Env, image: &MemFs, report: &CheckReport) -> Option<String> {
    let torn_segment = torn_segment(image, report);
    let (mut file, mut found) = (String::new(), None);
    let shown = DumpOptions::default().env(env.clone()).dump(DIR, |item| match item.kind {
        "file" => file = text(&item.fields[0].1),
        "damage" if found.is_none() => {
            let name = file.rsplit('/').next().unwrap_or_default();
            let left_over =
                report.notes.iter().any(|note| note.starts_with(&format!("{name} is not needed")));
            if !left_over && Some(name) != torn_segment.as_deref() {
                let detail: Vec<_> = item.fields.iter().map(|(_, value)| text(value)).collect();
                found = Some(format!("{file} at offset {}: {}", item.offset, detail.join(": ")));
            }
        }
        _ => {}
    });
    shown.unwrap_or_else(|error| panic!("dump: {error}"));
    found
}

/// Returns the log's last segment if the log ends in an unfinished commit. A power loss may lose unsynced
/// records before others that survive.
fn torn_segment(image: &MemFs, report: &CheckReport) -> Option<String> {
    use esker_env::Fs;
    report.notes.iter().find(|note| note.contains("of an unfinished commit"))?;
    let names = image.list_dir(DIR.as_ref()).expect("a file system in memory does not fail");
    let number = |name: &String| name.strip_suffix(".wal").and_then(|number| number.parse::<u64>().ok());
    names.into_iter().filter(|name| number(name).is_some()).max_by_key(number)
}

fn text(value: &DumpValue) -> String {
    match value {
        DumpValue::Number(n) => n.to_string(),
        DumpValue::Text(text) => text.clone(),
        DumpValue::Bytes(bytes) => bytes.escape_ascii().to_string(),
    }
}
