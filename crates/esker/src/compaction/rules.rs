//! History rules: which versions of some keyspaces compactions keep in addition to those that readers need.
//!
//! ```text
//!   rule of a keyspace          kept of its versions (k9 k7 k4 k2), all readers at 10
//!   none                        k9                      its number may become zero
//!   two versions                k9 k7                   tombstones, also of ranges, count as versions
//!   all from 5 on               k9 k7 k4                what a reader at 5 sees, and everything newer
//!   all from the end on         k9                      its number stays
//! ```
//!
//! No version under a rule loses its sequence number.

use std::ops::Range;
use std::sync::Arc;

use crate::types::key::{encode_key, keyspace_end};
use crate::types::key_range::KeyRange;
use crate::types::{KeyspaceId, SeqNo};

/// What a rule keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// This number of the newest versions of each key.
    Versions(u32),
    /// What readers at this and all later sequence numbers see.
    From(SeqNo),
}

/// A keyspace with a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ruled {
    /// The keyspace.
    pub(crate) id: KeyspaceId,
    /// Range of its encoded keys.
    pub(crate) keys: Range<Vec<u8>>,
    /// Its rule.
    pub(crate) rule: Rule,
}

/// The rules of all keyspaces that have one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// In key order; `None` if there are no rules.
    ruled: Option<Arc<[Ruled]>>,
}

impl Rules {
    /// Returns a set of rules.
    pub(crate) fn new(rules: impl IntoIterator<Item = (KeyspaceId, Rule)>) -> Self {
        let ruled = |(id, rule)| Ruled { id, keys: encode_key(id, &[])..keyspace_end(id), rule };
        let mut ruled: Vec<_> = rules.into_iter().map(ruled).collect();
        ruled.sort_by(|a, b| a.keys.start.cmp(&b.keys.start));
        Rules { ruled: (!ruled.is_empty()).then(|| ruled.into()) }
    }

    /// Returns all rules in key order.
    #[inline]
    pub(crate) fn all(&self) -> &[Ruled] {
        self.ruled.as_deref().unwrap_or_default()
    }

    /// Returns the rules of keyspaces that may have keys in a range.
    pub(crate) fn overlapping<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Ruled> {
        let meets = |ruled: &&Ruled| ruled.keys.end > range.start && range.end.admits(&ruled.keys.start);
        self.all().iter().filter(meets)
    }

    /// Returns the newest sequence number below which no rule keeps an older version in the range, given that
    /// no reader stands below `oldest`.
    pub(crate) fn settled_to(&self, range: &KeyRange, oldest: SeqNo) -> SeqNo {
        let of = |ruled: &Ruled| match ruled.rule {
            Rule::Versions(_) => SeqNo::ZERO,
            Rule::From(seq) => seq,
        };
        self.overlapping(range).map(of).fold(oldest, SeqNo::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::key_range::End;

    #[test]
    fn tables_that_touch_a_keyspace_with_a_rule_are_settled_as_far_as_that_says() {
        let id = KeyspaceId::new;
        let (from, versions) = (Rule::From(SeqNo::new(30)), Rule::Versions(2));
        let rules = Rules::new([(id(7), versions), (id(3), from)]);
        let to = |first: u32, last: u32| {
            let end = End::Included(encode_key(id(last), b"x"));
            let range = KeyRange { start: encode_key(id(first), b"a"), end };
            rules.settled_to(&range, SeqNo::new(50)).get()
        };
        assert_eq!([to(1, 2), to(2, 4), to(3, 3), to(4, 6), to(6, 8), to(2, 9)], [50, 30, 30, 50, 0, 0]);
        assert_eq!(rules.all().iter().map(|ruled| ruled.id).collect::<Vec<_>>(), [id(3), id(7)]);
    }
}
