//! Checks that a key holds what this server could have written, for `ES.VERIFY`.
//!
//! Every command can read and change what passes, without an overflow, a panic or an endless walk.

use std::collections::BTreeMap;

use super::deadlines::check_deadlines;
use super::small;
use super::stream::groups::{BY_CONSUMER, CONSUMER, CONSUMER_COUNT_AT, GROUP, GROUP_COUNT_AT, PENDING};
use super::stream::{ENTRY, StreamId, number};
use super::subkey::{ordered_score, score_of};
use crate::store::record::{Kind, Main, Shape};

/// What is wrong.
pub type Problem = &'static str;

/// Sub-keys and values of a collection, sorted.
pub type Parts = [(Vec<u8>, Vec<u8>)];

/// Allowed places of list elements. They leave room on both sides.
const PLACES: std::ops::Range<u64> = 1 << 62..3 << 62;
/// Maximum of counts. Larger ones could overflow one day.
const COUNT_MAX: u64 = 3 << 62;

fn ensure(is_so: bool, problem: Problem) -> Result<(), Problem> {
    if is_so { Ok(()) } else { Err(problem) }
}

/// Checks a main record, the parts of its collection that are separate records, and the records of the
/// deadlines of its fields.
///
/// # Errors
/// What is wrong.
pub fn check(main: &Main, parts: &Parts, deadlines: &Parts) -> Result<(), Problem> {
    if main.kind == Kind::String {
        return ensure(parts.is_empty() && !main.is_small(), "a string has parts");
    }
    let shape = main.shape().map_err(|_| "the head of the collection is cut off")?;
    let own: Vec<(Vec<u8>, Vec<u8>)>;
    let parts = match main.small() {
        Some(bytes) => {
            ensure(parts.is_empty(), "a small collection has parts elsewhere")?;
            own = small::decode(bytes).ok_or("the parts of the small collection are damaged")?;
            own.as_slice()
        }
        None => {
            ensure(main.has_no_rest(), "bytes after the head of the collection")?;
            parts
        }
    };
    ensure(parts.is_sorted_by(|a, b| a.0 < b.0), "parts are not in order")?;
    let is_empty_allowed = main.kind == Kind::Stream;
    ensure(shape.len > 0 || is_empty_allowed, "the collection is empty")?;
    match main.kind {
        Kind::String => Ok(()),
        Kind::Hash => {
            ensure(parts.len() as u64 == shape.len, "the length is not the number of fields")?;
            let Some(head) = &shape.deadlines else { return Ok(()) };
            let has_field = |field: &[u8]| parts.binary_search_by(|part| (*part.0).cmp(field)).is_ok();
            check_deadlines(head, deadlines, &has_field)
        }
        Kind::Set => {
            ensure(parts.len() as u64 == shape.len, "the length is not the number of members")?;
            ensure(parts.iter().all(|part| part.1.is_empty()), "a member of a set has a value")
        }
        Kind::List => list(&shape, parts),
        Kind::SortedSet => sorted_set(&shape, parts),
        Kind::Stream => stream(&shape, parts),
    }
}

fn list(shape: &Shape, parts: &Parts) -> Result<(), Problem> {
    let [first, behind, ..] = shape.head;
    ensure(PLACES.contains(&first) && PLACES.contains(&behind), "a list is out of its places")?;
    ensure(behind.checked_sub(first) == Some(shape.len), "the length is not the number of places")?;
    ensure(parts.len() as u64 == shape.len, "the length is not the number of elements")?;
    let mut places = first..behind;
    let has_place = |part: &(Vec<u8>, Vec<u8>)| places.next().is_some_and(|at| part.0 == at.to_be_bytes());
    ensure(parts.iter().all(has_place), "an element is not at its place")
}

fn sorted_set(shape: &Shape, parts: &Parts) -> Result<(), Problem> {
    let split = parts.partition_point(|part| part.0.first() == Some(&0));
    let (by_member, by_score) = parts.split_at(split);
    ensure(by_member.len() as u64 == shape.len, "the length is not the number of members")?;
    ensure(by_score.len() == by_member.len(), "members and scores differ in number")?;
    let mut scores = Vec::with_capacity(by_member.len());
    for (sub, value) in by_member {
        let bits = value.as_slice().try_into().map_err(|_| "a score is no double")?;
        let score = f64::from_bits(u64::from_le_bytes(bits));
        ensure(!score.is_nan(), "a score is no number")?;
        scores.push([&[1][..], &ordered_score(score), &sub[1..]].concat());
    }
    scores.sort_unstable();
    let is_same = scores.iter().zip(by_score).all(|(score, part)| *score == part.0 && part.1.is_empty());
    ensure(is_same, "members and scores differ")?;
    // A score with other bits would be found under another score than it shows.
    let is_number = |part: &(Vec<u8>, Vec<u8>)| {
        part.0
            .get(1..9)
            .and_then(|bytes| bytes.try_into().ok())
            .is_some_and(|score| !score_of(score).is_nan())
    };
    ensure(by_score.iter().all(is_number), "a score is no number")
}

/// A name with its length in 4 bytes, and the rest.
fn named(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*len) as usize)
}

/// Returns whether fields and values of an entry are complete, each with its length.
fn is_entry(mut bytes: &[u8]) -> bool {
    let mut pieces = 0;
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        let Some(rest) = rest.get(u32::from_le_bytes(*len) as usize..) else { return false };
        (bytes, pieces) = (rest, pieces + 1);
    }
    bytes.is_empty() && pieces > 0 && pieces % 2 == 0
}

/// Counts that a stream's groups state, and counts of their parts.
#[derive(Default)]
struct Groups<'p> {
    /// By group: the stated and the actual number of pending entries.
    groups: BTreeMap<&'p [u8], [u64; 2]>,
    /// By group and consumer: the same, and the number of index parts from the consumer to pending entries.
    consumers: BTreeMap<(&'p [u8], &'p [u8]), [u64; 3]>,
    pending: BTreeMap<(&'p [u8], StreamId), &'p [u8]>,
}

fn stream(shape: &Shape, parts: &Parts) -> Result<(), Problem> {
    let last = StreamId { ms: shape.head[0], seq: shape.head[1] };
    ensure(shape.head[2] <= COUNT_MAX && shape.len <= COUNT_MAX, "a count is too large")?;
    ensure(shape.head[2] >= shape.len, "fewer entries were added than there are")?;
    let (mut entries, mut groups) = (0, Groups::default());
    for (sub, value) in parts {
        let (kind, rest) = sub.split_first().ok_or("a part of no kind")?;
        match *kind {
            ENTRY => {
                let id = StreamId::of(rest);
                ensure(rest.len() == 16 && id > StreamId::default() && id <= last, "an id is out of bounds")?;
                ensure(is_entry(value), "the fields of an entry are damaged")?;
                entries += 1;
            }
            _ => groups.add(*kind, rest, value)?,
        }
    }
    ensure(entries == shape.len, "the length is not the number of entries")?;
    groups.check()
}

impl<'p> Groups<'p> {
    fn add(&mut self, kind: u8, rest: &'p [u8], value: &'p [u8]) -> Result<(), Problem> {
        let id_of = |bytes: &[u8]| (bytes.len() == 16).then(|| StreamId::of(bytes));
        if kind == GROUP {
            ensure(value.len() == GROUP_COUNT_AT + 8, "the record of a group is damaged")?;
            let read = number(value, 16);
            ensure(read <= COUNT_MAX || read == u64::MAX, "a count is too large")?;
            self.groups.insert(rest, [number(value, GROUP_COUNT_AT), 0]);
            return Ok(());
        }
        let (group, rest) = named(rest).ok_or("the name of a group is damaged")?;
        let counts = self.groups.get_mut(group).ok_or("there is no such group")?;
        match kind {
            CONSUMER => {
                ensure(value.len() == CONSUMER_COUNT_AT + 8, "the record of a consumer is damaged")?;
                self.consumers.insert((group, rest), [number(value, CONSUMER_COUNT_AT), 0, 0]);
            }
            PENDING => {
                let id = id_of(rest).ok_or("the id of a pending entry is damaged")?;
                let consumer = value.get(16..).ok_or("the record of a pending entry is damaged")?;
                ensure(number(value, 8) <= COUNT_MAX, "a count is too large")?;
                counts[1] += 1;
                self.consumers.get_mut(&(group, consumer)).ok_or("there is no such consumer")?[1] += 1;
                self.pending.insert((group, id), consumer);
            }
            BY_CONSUMER => {
                let (consumer, rest) = named(rest).ok_or("the name of a consumer is damaged")?;
                let id = id_of(rest).ok_or("the id of a pending entry is damaged")?;
                let is_pending = self.pending.get(&(group, id)) == Some(&consumer);
                ensure(is_pending && value.is_empty(), "a consumer leads to what is not pending for it")?;
                self.consumers.get_mut(&(group, consumer)).ok_or("there is no such consumer")?[2] += 1;
            }
            _ => return Err("a part of an unknown kind"),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Problem> {
        let groups = self.groups.values().all(|[said, are]| said == are);
        let consumers = self.consumers.values().all(|[said, are, led]| said == are && are == led);
        ensure(groups && consumers, "a count of pending entries is wrong")
    }
}
