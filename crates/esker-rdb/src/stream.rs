//! Streams: entries in listpacks, and consumer groups.
//!
//! ```text
//!   number, (first id, listpack: master entry, entries)*, length, last id, [first id, deleted id, added],
//!   groups: name, last delivered id, [entries read], pending: id, time, count; consumers: name, times, ids
//! ```
//!
//! A master entry has the fields that most entries of its listpack have. Ids of entries are relative to it.

use std::collections::BTreeMap;
use std::io::Read;

use crate::budget::Budget;
use crate::error::Result;
use crate::input::Input;
use crate::packed;

/// The id of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    /// Milliseconds.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// A stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// The entries, in order.
    pub entries: Vec<Entry>,
    /// The id of the newest entry that ever was.
    pub last_id: StreamId,
    /// The largest id of a deleted entry.
    pub max_deleted_id: StreamId,
    /// Number of entries that were ever added.
    pub added: u64,
    /// The consumer groups.
    pub groups: Vec<Group>,
}

/// An entry of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: StreamId,
    /// Fields and values in turn.
    pub fields: Vec<Vec<u8>>,
}

/// A consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Vec<u8>,
    /// The id of the last entry delivered.
    pub last_id: StreamId,
    /// Number of entries delivered, if it is known.
    pub read: Option<u64>,
    /// The consumers.
    pub consumers: Vec<Consumer>,
}

/// A consumer of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: Vec<u8>,
    /// When it last asked for entries, in Unix milliseconds.
    pub seen_ms: u64,
    /// When it last received entries, if that is known; 0: never.
    pub active_ms: Option<u64>,
    /// Entries delivered to it and not acknowledged.
    pub pending: Vec<Pending>,
}

/// A delivered entry that is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// The id of the entry.
    pub id: StreamId,
    /// When it was delivered, in Unix milliseconds.
    pub delivered_ms: u64,
    /// How often it was delivered.
    pub count: u64,
}

/// Flags of an entry in a listpack.
const DELETED: i64 = 1;
pub(crate) const SAME_FIELDS: i64 = 2;

pub(crate) fn read<R: Read>(input: &mut Input<R>, number: u8) -> Result<Stream> {
    let mut stream = Stream::default();
    for _ in 0..input.length()? {
        let first = input.string()?;
        let first = first.try_into().map_err(|_| input.damaged("the id of a listpack is damaged"))?;
        let elements = input.string()?;
        let budget = input.budget();
        let is_read = packed::listpack(&elements, budget)
            .and_then(|all| entries(raw_id(first), &all, budget, &mut stream.entries));
        is_read.ok_or_else(|| input.damaged("the entries of a stream are damaged"))?;
    }
    let len = input.length()?;
    if len != stream.entries.len() as u64 || !stream.entries.is_sorted_by(|a, b| a.id < b.id) {
        return Err(input.damaged("the length of a stream, or the order of its entries, is wrong"));
    }
    stream.last_id = id(input)?;
    stream.added = len;
    let has_counts = number >= 19;
    if has_counts {
        let _first_id = id(input)?;
        stream.max_deleted_id = id(input)?;
        stream.added = input.length()?;
    }
    for _ in 0..input.length()? {
        stream.groups.push(group(input, has_counts, number >= 21)?);
    }
    Ok(stream)
}

fn id<R: Read>(input: &mut Input<R>) -> Result<StreamId> {
    Ok(StreamId { ms: input.length()?, seq: input.length()? })
}

fn raw_id(bytes: [u8; 16]) -> StreamId {
    let id = u128::from_be_bytes(bytes);
    StreamId { ms: (id >> 64) as u64, seq: id as u64 }
}

fn group<R: Read>(input: &mut Input<R>, has_count: bool, has_active_time: bool) -> Result<Group> {
    let (name, last_id) = (input.string()?, id(input)?);
    // A number that is not known is -1.
    let read = if has_count { Some(input.length()?).filter(|read| *read <= i64::MAX as u64) } else { None };
    let mut pending = BTreeMap::new();
    for _ in 0..input.length()? {
        let id = raw_id(input.array()?);
        let (delivered_ms, count) = (input.u64()?, input.length()?);
        input.spend(0)?;
        pending.insert(id, Pending { id, delivered_ms, count });
    }
    let mut consumers = Vec::new();
    for _ in 0..input.length()? {
        let name = input.string()?;
        let seen_ms = input.u64()?;
        // -1 stands for never.
        let active_ms = match has_active_time {
            true => Some(input.u64()?).map(|at| if at == u64::MAX { 0 } else { at }),
            false => None,
        };
        let mut own = Vec::new();
        for _ in 0..input.length()? {
            let id = raw_id(input.array()?);
            let found = pending.remove(&id);
            own.push(found.ok_or_else(|| input.damaged("a consumer has an entry that is not pending"))?);
        }
        consumers.push(Consumer { name, seen_ms, active_ms, pending: own });
    }
    if !pending.is_empty() {
        return Err(input.damaged("a pending entry has no consumer"));
    }
    Ok(Group { name, last_id, read, consumers })
}

/// Appends the entries of a listpack that are not deleted.
fn entries(first: StreamId, elements: &[Vec<u8>], budget: &mut Budget, into: &mut Vec<Entry>) -> Option<()> {
    let mut copy = |element: &Vec<u8>| {
        budget.spend(element.len() as u64)?;
        Some(element.clone())
    };
    let mut rest = elements.iter();
    let mut number = || -> Option<i64> { std::str::from_utf8(rest.next()?).ok()?.parse().ok() };
    let (valid, deleted, fields) = (number()?, number()?, number()?);
    let master: Vec<&Vec<u8>> = rest.by_ref().take(usize::try_from(fields).ok()?).collect();
    (master.len() as i64 == fields && rest.next()? == b"0").then_some(())?;
    for _ in 0..valid.checked_add(deleted)? {
        let mut number = || -> Option<i64> { std::str::from_utf8(rest.next()?).ok()?.parse().ok() };
        let (flags, ms, seq) = (number()?, number()?, number()?);
        let mut fields = Vec::new();
        if flags & SAME_FIELDS != 0 {
            for name in &master {
                fields.extend([copy(name)?, copy(rest.next()?)?]);
            }
        } else {
            for _ in 0..number()?.checked_mul(2)? {
                fields.push(copy(rest.next()?)?);
            }
        }
        let _number_of_elements = rest.next()?;
        if flags & DELETED == 0 {
            let id =
                StreamId { ms: first.ms.wrapping_add(ms as u64), seq: first.seq.wrapping_add(seq as u64) };
            into.push(Entry { id, fields });
        }
    }
    rest.next().is_none().then_some(())
}
