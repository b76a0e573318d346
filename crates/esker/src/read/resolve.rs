//! Decides what the versions of a key mean.
//!
//! ```text
//!   versions of one key, newest first --feed--> Live | Gone | Operand | Older
//! ```
//!
//! This file turns the properties of a kind (types/op.rs) into an answer for readers. Point reads, iterators,
//! counts, transactions and compactions use it.
//!
//! A version is hidden by a range tombstone over its key with a larger sequence number
//! (range_tombstone.2).
//!
//! Versions are fed newest first until one ends the search. If there is no older version, the key
//! does not exist.
//!
//! - For a reader, an expired version is a removal: older versions stay hidden. Counts and merges
//!   treat it as live until a sweep has removed it (engine/writes/sweep.rs).
//!
//! A key with an operand exists, whatever lies below. Its value results from applying the operands found
//! until the search ended to the value of that version, or to none (`fold.rs`).

use crate::types::SeqNo;
use crate::types::op::Kind;

/// The meaning of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The key has the value of this version.
    Live,
    /// The key does not exist.
    Gone,
    /// The key exists. Its value depends on this operand and on older versions.
    Operand,
    /// Undecided: the next older version is needed.
    Older,
}

/// Resolves the versions of one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resolver {
    /// The newest range tombstone over the key so far; zero if there is none.
    cover: SeqNo,
}

impl Resolver {
    /// Adds a range tombstone over the key; zero for none. Must be called before the versions that it may
    /// hide are fed.
    #[inline(always)]
    pub fn cover(&mut self, seq: SeqNo) {
        self.cover = self.cover.max(seq);
    }

    /// Returns whether a range tombstone hides a version.
    #[inline(always)]
    pub fn hides(&self, seq: SeqNo) -> bool {
        seq < self.cover
    }

    /// Feeds the next version for a reader. `expired` is called if its kind can expire, and returns whether
    /// it has.
    #[inline(always)]
    pub fn feed_reader(&self, seq: SeqNo, kind: Kind, expired: impl FnOnce() -> bool) -> Answer {
        match self.feed(seq, kind) {
            Answer::Live if kind.expires() && expired() => Answer::Gone,
            answer => answer,
        }
    }

    /// Feeds the next version.
    #[inline(always)]
    pub fn feed(&self, seq: SeqNo, kind: Kind) -> Answer {
        if self.hides(seq) {
            return Answer::Gone;
        }
        if kind.is_operand() {
            Answer::Operand
        } else if kind.is_live() {
            Answer::Live
        } else if kind.ends_search() {
            Answer::Gone
        } else {
            // A range removal takes effect through `cover`.
            Answer::Older
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_1_resolve_2_the_first_version_that_ends_the_search_answers_unless_a_range_tombstone_hides_it()
    {
        let seq = SeqNo::new;
        let answer = |cover, version, kind| {
            let mut resolver = Resolver::default();
            resolver.cover(seq(cover));
            resolver.cover(SeqNo::ZERO);
            resolver.feed(seq(version), kind)
        };
        assert_eq!(answer(0, 0, Kind::PUT), Answer::Live);
        assert_eq!(answer(5, 5, Kind::PUT), Answer::Live, "same commit");
        assert_eq!(answer(6, 5, Kind::PUT), Answer::Gone);
        assert_eq!(answer(0, 5, Kind::REMOVE), Answer::Gone);
        assert_eq!(answer(0, 5, Kind::REMOVE_RANGE), Answer::Older);
        assert_eq!(answer(0, 5, Kind::PUT.expiring()), Answer::Live);
        for (kind, expired, expected) in [
            (Kind::PUT.expiring(), true, Answer::Gone),
            (Kind::PUT.expiring(), false, Answer::Live),
            (Kind::PUT, true, Answer::Live),
            (Kind::EXPIRED, false, Answer::Gone),
        ] {
            let fed = Resolver::default().feed_reader(seq(5), kind, || expired);
            assert_eq!(fed, expected, "{kind:?}");
        }
        assert_eq!(answer(5, 5, Kind::MERGE), Answer::Operand);
        assert_eq!(answer(6, 5, Kind::MERGE.unresolved()), Answer::Gone);
    }
}
