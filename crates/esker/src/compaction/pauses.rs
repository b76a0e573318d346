//! Tables of merges that failed, and for how long others leave them alone.
//!
//! ```text
//!   a merge fails on one of its inputs --note--> now(): what the picker passes over
//!                                          `---> all(): what is no debt, since nobody can merge it
//!   a merge fails on its output -------note--> now(): what is not merged only because nobody writes, nor, for want of space, at all
//!                                                     before there is more (RO1 of room.rs)
//! ```
//!
//! PA1. A table is passed over after each failure, for twice as long as the time before, an hour at the most. So damage
//!      costs little, holds up no other merge, and what was an accident of the moment is made good soon. And a full disk is not
//!      filled to the last byte every few seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::types::FileId;

/// The pause after the first failure.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// The tables, each with its last pause and its end.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    tables: BTreeMap<FileId, Pause>,
}

#[derive(Debug)]
struct Pause {
    length: Duration,
    until: Duration,
}

impl Pauses {
    /// A merge of `file` has failed.
    pub(crate) fn note(&mut self, file: FileId, now: Duration) {
        let last = self.tables.get(&file).map(|pause| pause.length);
        let length = last.map_or(PAUSE_MIN, |length| (length * 2).min(PAUSE_MAX));
        self.tables.insert(file, Pause { length, until: now + length });
    }

    /// Forgets the tables that are not there any more.
    pub(crate) fn retain(&mut self, is_there: impl Fn(FileId) -> bool) {
        self.tables.retain(|file, _| is_there(*file));
    }

    /// Those to leave alone now.
    pub(crate) fn now(&self, now: Duration) -> BTreeSet<FileId> {
        self.tables.iter().filter(|(_, pause)| now < pause.until).map(|(file, _)| *file).collect()
    }

    /// Every one.
    pub(crate) fn all(&self) -> BTreeSet<FileId> {
        self.tables.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pa1_pauses_double_up_to_an_hour_and_end_with_the_table() {
        let mut unreadable = Pauses::default();
        let (file, other) = (FileId::new(7), FileId::new(8));
        let mut now = Duration::from_secs(100);
        let mut pauses = Vec::new();
        for _ in 0..15 {
            unreadable.note(file, now);
            let passed_over = |at| unreadable.now(at).contains(&file);
            let pause = (1..=4000).map(Duration::from_secs).find(|pause| !passed_over(now + *pause)).unwrap();
            assert!(passed_over(now) && passed_over(now + pause - Duration::from_nanos(1)));
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600, 3600]);
        unreadable.note(other, now);
        assert_eq!(unreadable.all(), BTreeSet::from([file, other]));
        assert_eq!(unreadable.now(now), BTreeSet::from([other]));
        unreadable.retain(|f| f != file);
        assert_eq!(unreadable.all(), BTreeSet::from([other]));
    }
}
