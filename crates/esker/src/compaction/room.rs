//! Room on the disk for merges that have found none.
//!
//! ```text
//!   a merge finds no space --note--> what is free then --may_suffice--> is one that has failed to be tried again now?
//! ```
//!
//! RO1. While the tables of a merge are put off (PA1) it is tried again only if there is more room: as much as it reads, so
//!      that it cannot but fit, or clearly more than when the last one failed, since many write less than they read. So a full disk is
//!      not filled to the last byte every few seconds for as long as it is full; and when files are deleted, by whomever, the
//!      next look at it, within seconds, finds that: writers who wait for merges wait no longer than before.
//! RO2. Nothing is known of room after any merge that has found some.

/// An eighth of what is to be written anew is clearly more room than before.
const MORE_PART: u64 = 8;

/// Whether clearly more is free than before, for work on so many bytes.
pub(crate) fn is_more(before: u64, free: u64, bytes: u64) -> bool {
    free.saturating_sub(before) > bytes / MORE_PART
}

/// What is known of the room for merges.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// What was free when a merge had failed, and removed what it had written.
    free_at_failure: Option<u64>,
}

impl Room {
    /// A merge has found no space; so much is free, as far as that can be found out.
    pub(crate) fn note_lack(&mut self, free: Option<u64>) {
        self.free_at_failure = free;
    }

    /// A merge has been written (RO2).
    pub(crate) fn note_success(&mut self) {
        self.free_at_failure = None;
    }

    /// Whether a merge of so many bytes may find room, with so much free (RO1).
    pub(crate) fn may_suffice(&self, bytes: u64, free: u64) -> bool {
        self.free_at_failure.is_none_or(|before| free >= bytes || is_more(before, free, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ro1_a_merge_is_tried_again_with_more_room_and_not_with_the_same() {
        let mut room = Room::default();
        assert!(room.may_suffice(800, 0), "RO2: nothing has failed");
        room.note_lack(Some(300));
        for (free, suffices) in [(0, false), (300, false), (400, false), (401, true), (800, true)] {
            assert_eq!(room.may_suffice(800, free), suffices, "RO1: {free} free");
        }
        // It reads less than what is free: there is no telling why it found none.
        assert!(room.may_suffice(300, 300), "RO1");
        room.note_lack(None);
        assert!(room.may_suffice(800, 0), "what is free is not known");
        room.note_lack(Some(0));
        room.note_success();
        assert!(room.may_suffice(800, 0), "RO2");
    }
}
