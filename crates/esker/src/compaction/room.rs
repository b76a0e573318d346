//! Room on the disk for merges that have found none.
//!
//! ```text
//!   a merge finds no space --note--> what is free then, by table --may_suffice--> is one that has failed to be tried again now?
//! ```
//!
//! RO1. While the tables of a merge are put off (PA1) it is tried again only if there is more room than when the last one failed: as
//!      much as it reads, where there was less, so that it cannot but fit, or clearly more, since many write less than they read. So a
//!      full disk is not filled to the last byte every few seconds for as long as it is full; and when files are deleted, by whomever,
//!      the next look at it, within seconds, finds that. Where there was as much as it reads, and yet no space, as much is no reason, but
//!      it is tried again once a minute: a quota is not seen to change, and a disk may have been full for a moment only.
//! RO2. What was free is known of each table by the last merge that read it. What others find says nothing of it: a move needs no room,
//!      and a small merge little.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::types::FileId;

/// After so long a merge is tried again that has found no space although there was room.
const QUOTA_PAUSE: Duration = Duration::from_secs(60);

/// An eighth of what is to be written anew is clearly more room than before.
const MORE_PART: u64 = 8;

/// Whether clearly more is free than before, for work on so many bytes.
pub(crate) fn is_more(before: u64, free: u64, bytes: u64) -> bool {
    free.saturating_sub(before) > bytes / MORE_PART
}

/// What is known of the room for merges.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// For each table: how its last merge has found no space.
    lacks: BTreeMap<FileId, Lack>,
}

/// A merge that has found no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lack {
    /// What was free when it had removed what it had written.
    pub free: u64,
    /// When that was.
    pub at: Duration,
}

impl Room {
    /// How the last merge of `files` ended: without space, or otherwise.
    pub(crate) fn note(&mut self, files: &BTreeSet<FileId>, lack: Option<Lack>) {
        for file in files {
            match lack {
                Some(lack) => self.lacks.insert(*file, lack),
                None => self.lacks.remove(file),
            };
        }
    }

    /// Forgets the tables that are not there any more.
    pub(crate) fn retain(&mut self, is_there: impl Fn(FileId) -> bool) {
        self.lacks.retain(|file, _| is_there(*file));
    }

    /// Whether a merge of `files`, of so many bytes, may find room, with so much free (RO1).
    pub(crate) fn may_suffice(&self, files: &BTreeSet<FileId>, bytes: u64, free: u64, now: Duration) -> bool {
        let Some(last) = files.iter().filter_map(|file| self.lacks.get(file)).max() else { return true };
        let had_room = last.free >= bytes;
        let is_quota_over = had_room && now >= last.at + QUOTA_PAUSE;
        is_more(last.free, free, bytes) || is_quota_over || !had_room && free >= bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(7);

    fn lack(free: u64) -> Option<Lack> {
        Some(Lack { free, at: NOW })
    }

    fn files(numbers: &[u64]) -> BTreeSet<FileId> {
        numbers.iter().map(|number| FileId::new(*number)).collect()
    }

    #[test]
    fn ro1_a_merge_is_tried_again_with_more_room_and_not_with_the_same() {
        let mut room = Room::default();
        let merge = files(&[1, 2]);
        assert!(room.may_suffice(&merge, 800, 0, NOW), "nothing has failed");
        room.note(&merge, lack(300));
        for (free, suffices) in [(0, false), (300, false), (400, false), (401, true), (800, true)] {
            assert_eq!(room.may_suffice(&merge, 800, free, NOW), suffices, "RO1: {free} free");
        }
        room.note(&merge, lack(799));
        for (free, suffices) in [(799, false), (800, true)] {
            assert_eq!(room.may_suffice(&merge, 800, free, NOW), suffices, "RO1: it fits with {free} free");
        }
        // There was as much as it reads, and it could not be used.
        room.note(&merge, lack(900));
        for (free, suffices) in [(800, false), (900, false), (1000, false), (1001, true)] {
            assert_eq!(
                room.may_suffice(&merge, 800, free, NOW),
                suffices,
                "RO1: {free} free, not all for us"
            );
        }
        let minute = NOW + QUOTA_PAUSE;
        assert!(!room.may_suffice(&merge, 800, 900, minute - Duration::from_nanos(1)), "RO1");
        assert!(room.may_suffice(&merge, 800, 900, minute), "RO1");
        assert!(!room.may_suffice(&merge, 901, 900, minute), "RO1: there was less than that");
        room.note(&merge, None);
        assert!(room.may_suffice(&merge, 800, 0, NOW), "what is free is not known");
    }

    #[test]
    fn ro2_what_others_find_changes_nothing() {
        let mut room = Room::default();
        room.note(&files(&[1, 2]), lack(300));
        room.note(&files(&[3]), lack(900));
        room.note(&files(&[4]), None);
        assert!(!room.may_suffice(&files(&[1, 2]), 800, 400, NOW), "RO2");
        assert!(room.may_suffice(&files(&[1, 2]), 800, 800, NOW), "RO2");
        assert!(!room.may_suffice(&files(&[2, 3]), 800, 800, NOW), "the last failure of either");
        assert!(room.may_suffice(&files(&[4]), 800, 0, NOW));
        room.retain(|file| file != FileId::new(3));
        assert!(room.may_suffice(&files(&[2, 3]), 800, 800, NOW), "it is gone");
    }
}
