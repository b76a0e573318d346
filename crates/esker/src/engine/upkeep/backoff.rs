//! Compaction backoff: which compactions failed recently, and how long each is left alone. Pure policy: no
//! I/O, no locks.
//!
//! ```text
//!   an input cannot be read ----note_unreadable--> Pauses: no plan reads it for a while; not pending
//!   an output cannot be written --note_unwritable--> Pauses: not compacted just because the database is idle
//!                               --note_space--> FreeSpace: no space: not compacted before more is free
//!                                                 `--> choose: the best plan that nothing here forbids
//! ```
//!
//! - After each failure a table is skipped for twice as long as before, one hour at most. So damage costs
//!   little and does not delay other compactions, and a passing failure is soon retried.
//! - A compaction that found no space is retried once enough is free: as many bytes as it reads, if less was
//!   free when it failed, or clearly more than then. If as much was free as it reads, it is also retried once
//!   a minute, because quotas are invisible to `statvfs`. So a full disk is not filled to the last byte every
//!   few seconds.
//! - The last compaction that read a table determines how much was free for it. Others do not: a trivial move
//!   needs no space, and a small compaction little.
//! - A compaction that waits for space does not delay others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::compaction::picker;
use crate::compaction::plan::{PickInput, Plan, PlanKind};
use crate::manifest::version::Version;
use crate::types::FileId;

/// The pause after the first failure.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Pause before a compaction that found no space although enough was free is tried again.
const QUOTA_PAUSE: Duration = Duration::from_secs(60);

/// More free space by this fraction of the bytes to write counts as clearly more.
const MORE_PART: u64 = 8;

/// Returns whether clearly more is free than before, for work on `bytes` bytes.
pub(crate) fn is_more(before: u64, free: u64, bytes: u64) -> bool {
    free.saturating_sub(before) > bytes / MORE_PART
}

/// The decision of [`CompactionBackoff::choose`].
#[derive(Debug)]
pub(crate) enum Choice {
    /// Execute this plan.
    Plan(Plan),
    /// No compaction is due.
    Nothing,
    /// The compaction that is due waits for space.
    PutOff,
}

/// Tables of failed compactions.
#[derive(Debug, Default)]
pub(crate) struct CompactionBackoff {
    /// Tables that could not be read.
    unreadable: Pauses,
    /// Tables of compactions whose output could not be written.
    unwritable: Pauses,
    free_space: FreeSpace,
}

impl CompactionBackoff {
    /// Records that a compaction failed to read this input.
    pub(crate) fn note_unreadable(&mut self, file: FileId, now: Duration) {
        self.unreadable.note(file, now);
    }

    /// Records that the output of a compaction of these tables could not be written.
    pub(crate) fn note_unwritable(&mut self, files: &BTreeSet<FileId>, now: Duration) {
        files.iter().for_each(|file| self.unwritable.note(*file, now));
    }

    /// Records how the last compaction of `files` ended. `free` is the free space if it found no space.
    pub(crate) fn note_space(&mut self, files: &BTreeSet<FileId>, free: Option<u64>, now: Duration) {
        self.free_space.note(files, free.map(|free| Lack { free, at: now }));
    }

    /// Forgets tables that no longer exist.
    pub(crate) fn retain(&mut self, is_there: impl Fn(FileId) -> bool + Copy) {
        self.unreadable.retain(is_there);
        self.unwritable.retain(is_there);
        self.free_space.retain(is_there);
    }

    /// Returns the tables that could not be read, even if their pauses are over.
    pub(crate) fn unreadable(&self) -> BTreeSet<FileId> {
        self.unreadable.all()
    }

    /// Returns the tables whose compactions could not be written recently.
    pub(crate) fn unwritable(&self, now: Duration) -> BTreeSet<FileId> {
        self.unwritable.now(now)
    }

    /// Returns the tables that could not be read, and those whose compactions could not be written recently.
    pub(crate) fn paused(&self, now: Duration) -> BTreeSet<FileId> {
        self.unreadable.all().union(&self.unwritable.now(now)).copied().collect()
    }

    /// Returns the most profitable plan that can be executed now. `free` returns the free space of the disk.
    pub(crate) fn choose(
        &self,
        version: &Version,
        mut input: PickInput,
        now: Duration,
        free: impl Fn() -> Option<u64>,
    ) -> Choice {
        input.skip.extend(self.unreadable.now(now));
        input.put_off = self.unwritable.now(now);
        let mut is_put_off = false;
        loop {
            let Some(plan) = picker::pick(version, &input) else {
                return if is_put_off { Choice::PutOff } else { Choice::Nothing };
            };
            if !self.lacks_space(version, &plan, &input.put_off, now, &free) {
                return Choice::Plan(plan);
            }
            is_put_off = true;
            input.skip.extend(plan.files());
        }
    }

    /// Returns whether a plan that was put off still lacks space. A trivial move needs none.
    fn lacks_space(
        &self,
        version: &Version,
        plan: &Plan,
        put_off: &BTreeSet<FileId>,
        now: Duration,
        free: impl Fn() -> Option<u64>,
    ) -> bool {
        let files = plan.files();
        if plan.kind == PlanKind::TrivialMove || put_off.is_disjoint(&files) {
            return false;
        }
        let bytes = plan.input_bytes(version);
        free().is_some_and(|free| !self.free_space.may_suffice(&files, bytes, free, now))
    }
}

/// Tables with the length and end of their last pause.
#[derive(Debug, Default)]
struct Pauses {
    tables: BTreeMap<FileId, Pause>,
}

#[derive(Debug)]
struct Pause {
    length: Duration,
    until: Duration,
}

impl Pauses {
    /// Records that a compaction of `file` failed.
    fn note(&mut self, file: FileId, now: Duration) {
        let last = self.tables.get(&file).map(|pause| pause.length);
        let length = last.map_or(PAUSE_MIN, |length| (length * 2).min(PAUSE_MAX));
        self.tables.insert(file, Pause { length, until: now + length });
    }

    /// Forgets tables that no longer exist.
    fn retain(&mut self, is_there: impl Fn(FileId) -> bool) {
        self.tables.retain(|file, _| is_there(*file));
    }

    /// Returns the tables to leave alone now.
    fn now(&self, now: Duration) -> BTreeSet<FileId> {
        self.tables.iter().filter(|(_, pause)| now < pause.until).map(|(file, _)| *file).collect()
    }

    /// Returns all tables.
    fn all(&self) -> BTreeSet<FileId> {
        self.tables.keys().copied().collect()
    }
}

/// Free space that failed compactions found.
#[derive(Debug, Default)]
struct FreeSpace {
    /// For each table, the failure of its last compaction for want of space.
    lacks: BTreeMap<FileId, Lack>,
}

/// A compaction that found no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lack {
    /// Free space after it had removed its output.
    free: u64,
    /// When it failed.
    at: Duration,
}

impl FreeSpace {
    /// Records how the last compaction of `files` ended; `lack` is set if it found no space.
    fn note(&mut self, files: &BTreeSet<FileId>, lack: Option<Lack>) {
        for file in files {
            match lack {
                Some(lack) => self.lacks.insert(*file, lack),
                None => self.lacks.remove(file),
            };
        }
    }

    /// Forgets tables that no longer exist.
    fn retain(&mut self, is_there: impl Fn(FileId) -> bool) {
        self.lacks.retain(|file, _| is_there(*file));
    }

    /// Returns whether a compaction of `files`, which reads `bytes`, may find space with `free` bytes free.
    fn may_suffice(&self, files: &BTreeSet<FileId>, bytes: u64, free: u64, now: Duration) -> bool {
        let Some(last) = files.iter().filter_map(|file| self.lacks.get(file)).max() else { return true };
        let had_space = last.free >= bytes;
        let is_quota_over = had_space && now >= last.at + QUOTA_PAUSE;
        is_more(last.free, free, bytes) || is_quota_over || !had_space && free >= bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour_and_end_with_the_table() {
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

    const NOW: Duration = Duration::from_secs(7);

    fn lack(free: u64) -> Option<Lack> {
        Some(Lack { free, at: NOW })
    }

    fn files(numbers: &[u64]) -> BTreeSet<FileId> {
        numbers.iter().map(|number| FileId::new(*number)).collect()
    }

    #[test]
    fn a_compaction_is_retried_with_more_space_and_not_with_the_same() {
        let mut space = FreeSpace::default();
        let compaction = files(&[1, 2]);
        assert!(space.may_suffice(&compaction, 800, 0, NOW), "nothing has failed");
        space.note(&compaction, lack(300));
        for (free, suffices) in [(0, false), (300, false), (400, false), (401, true), (800, true)] {
            assert_eq!(space.may_suffice(&compaction, 800, free, NOW), suffices, "{free} free");
        }
        space.note(&compaction, lack(799));
        for (free, suffices) in [(799, false), (800, true)] {
            assert_eq!(space.may_suffice(&compaction, 800, free, NOW), suffices, "it fits with {free} free");
        }
        // As much was free as the compaction reads, but it could not be used.
        space.note(&compaction, lack(900));
        for (free, suffices) in [(800, false), (900, false), (1000, false), (1001, true)] {
            assert_eq!(
                space.may_suffice(&compaction, 800, free, NOW),
                suffices,
                "{free} free, not all for us"
            );
        }
        let minute = NOW + QUOTA_PAUSE;
        assert!(!space.may_suffice(&compaction, 800, 900, minute - Duration::from_nanos(1)));
        assert!(space.may_suffice(&compaction, 800, 900, minute));
        assert!(!space.may_suffice(&compaction, 901, 900, minute), "there was less than that");
        space.note(&compaction, None);
        assert!(space.may_suffice(&compaction, 800, 0, NOW), "what is free is not known");
    }

    #[test]
    fn what_others_find_changes_nothing() {
        let mut space = FreeSpace::default();
        space.note(&files(&[1, 2]), lack(300));
        space.note(&files(&[3]), lack(900));
        space.note(&files(&[4]), None);
        assert!(!space.may_suffice(&files(&[1, 2]), 800, 400, NOW));
        assert!(space.may_suffice(&files(&[1, 2]), 800, 800, NOW));
        assert!(!space.may_suffice(&files(&[2, 3]), 800, 800, NOW), "the last failure of either");
        assert!(space.may_suffice(&files(&[4]), 800, 0, NOW));
        space.retain(|file| file != FileId::new(3));
        assert!(space.may_suffice(&files(&[2, 3]), 800, 800, NOW), "it is gone");
    }
}
