//! Decides which part of the log is kept for the feed: the newest segments up to a size and an age, and held
//! ones up to a limit of their own.
//!
//! Segments that recovery needs are always kept, and count. This is policy only; engine/state/feed.rs acts on
//! it.

use crate::manifest::feed::{FeedLimits, Released};
use crate::types::SeqNo;
use crate::wal::Shelved;

/// What readers have asked to keep beyond the limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// The first held commit.
    pub(crate) from: SeqNo,
    /// Nothing is held while the log is larger than this.
    pub(crate) bytes: u64,
}

/// The first segment to keep, if an older one has to go. `needed_from` is the first that recovery needs;
/// `now` is in seconds.
pub(crate) fn first_kept(
    segments: &[(u64, Shelved)],
    released: &[Released],
    needed_from: u64,
    limits: FeedLimits,
    hold: Option<Hold>,
    now: u64,
) -> Option<u64> {
    let is_held = |at: usize, bytes: u64| {
        // A commit that begins in a segment ends before the first commit of a later one.
        let end = segments[at + 1..].iter().find_map(|(_, shelved)| shelved.first);
        hold.is_some_and(|hold| bytes <= hold.bytes && end.is_none_or(|end| end > hold.from))
    };
    let beside = released.iter().map(|part| part.beside);
    let mut bytes: u64 = segments.iter().map(|(_, shelved)| shelved.bytes).chain(beside).sum();
    let mut first = None;
    for (at, (number, shelved)) in segments.iter().enumerate() {
        if *number >= needed_from {
            break;
        }
        let part = released.iter().find(|part| part.below > *number);
        let is_old = part.is_some_and(|part| part.at.saturating_add(limits.age) <= now);
        if (bytes <= limits.bytes && !is_old) || is_held(at, bytes) {
            break;
        }
        let beside = part.filter(|part| part.below == number + 1).map_or(0, |part| part.beside);
        bytes -= shelved.bytes + beside;
        first = Some(number + 1);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments 1 to 6 of 10 bytes. 1 and 2 were released at second 100; 3 and 4 at second 200, with 50 bytes
    /// outside the log; 5 and 6 are needed.
    #[test]
    fn the_oldest_goes_by_bytes_and_by_age() {
        let segments: Vec<_> = (1..7).map(|n| (n, Shelved { first: None, bytes: 10 })).collect();
        let released =
            [Released { below: 3, at: 100, beside: 0 }, Released { below: 5, at: 200, beside: 50 }];
        let first =
            |bytes, age, now| first_kept(&segments, &released, 5, FeedLimits { bytes, age }, None, now);
        // bytes, age, now -> first
        let table = [
            ((110, 100, 199), None),
            ((109, 100, 199), Some(2)),
            ((100, 100, 199), Some(2)),
            ((90, 100, 199), Some(3)),
            ((80, 100, 199), Some(4)),
            ((79, 100, 199), Some(5)),
            ((0, 100, 199), Some(5)),
            ((110, 100, 200), Some(3)),
            ((110, 100, 299), Some(3)),
            ((110, 100, 300), Some(5)),
            ((110, u64::MAX, 300), None),
            ((110, 100, 0), None),
        ];
        for ((bytes, age, now), expected) in table {
            assert_eq!(first(bytes, age, now), expected, "{bytes} bytes, {age} s, at {now}");
        }
    }
    /// Segments 1 to 4 of 10 bytes begin with commits 100, 200, none and 400; 5 is needed. Only held segments
    /// are kept.
    #[test]
    fn what_is_held_stays_up_to_its_limit() {
        let firsts = [Some(100), Some(200), None, Some(400), Some(500)];
        let shelved = |first: Option<u64>| Shelved { first: first.map(SeqNo::new), bytes: 10 };
        let segments: Vec<_> = (1..).zip(firsts.map(shelved)).collect();
        let limits = FeedLimits { bytes: 0, age: 0 };
        // first held commit, bytes -> first
        let table = [
            ((0, 50), None),
            ((199, 50), None),
            ((200, 50), Some(2)),
            ((399, 50), Some(2)),
            ((400, 50), Some(4)),
            ((500, 50), Some(5)),
            ((199, 49), Some(2)),
            ((199, 10), Some(5)),
        ];
        for ((from, bytes), expected) in table {
            let hold = Some(Hold { from: SeqNo::new(from), bytes });
            assert_eq!(first_kept(&segments, &[], 5, limits, hold, 0), expected, "{from}, {bytes} bytes");
        }
    }
}
