//! Deadlines of the fields of hashes.
//!
//! ```text
//!   main record of a hash --> version of its deadlines, the first of them, their number
//!   r<n>.s  version, 0, field            --> deadline   when a field expires
//!           version, 1, deadline, field  --> nothing    the fields of a hash, in the order of deadlines
//!           0, first deadline, key       --> nothing    the hashes, in the order of first deadlines
//! ```
//!
//! data.4. The main record of a hash has the exact first deadline and the exact number of deadlines. The hash
//! has one entry by that first deadline. A hash whose fields have no deadlines has none of these records.
//!
//! - A field whose deadline has passed is absent to every reader. It is still stored until the sweeper or a
//!   writer of that field removes it. Only a hash whose first deadline has passed can have such fields, so
//!   reads of all others look up no deadline.
//! - The length in the main record counts all stored fields, also those that have expired.

use std::ops::ControlFlow;

use super::Collection;
use super::subkey::{BY_DEADLINE, BY_FIELD, deadline_key, due_key, field_key, parts_prefix, split_due};
use crate::base::events::Event;
use crate::resp::fail::Done;
use crate::run::cx::{Access, Cx};
use crate::store::record::{Deadlines, Main};
use crate::store::{Order, Reads, Result, Space, Span, prefix_end};

/// Maximum number of fields that the sweeper removes at a time.
const AT_A_TIME: usize = 500;

/// Start of the entries of a version in the order of deadlines.
fn by_deadline(version: u64) -> Vec<u8> {
    [&parts_prefix(version)[..], &[BY_DEADLINE]].concat()
}

/// Visits the fields of a hash whose deadlines have passed, in the order of deadlines.
fn visit_expired(
    (reads, sub): (&dyn Reads, &Space),
    version: u64,
    now: u64,
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let (from, end) = (by_deadline(version), deadline_key(version, now + 1, b""));
    let start = from.len() + size_of::<u64>();
    reads.range(sub, Span::between(&from, &end), Order::Up, &mut |key, _| {
        visit(key.get(start..).unwrap_or_default())
    })
}

/// Returns the first or the last entry in the order of deadlines: the deadline.
fn outermost((reads, sub): (&dyn Reads, &Space), version: u64, order: Order) -> Result<Option<u64>> {
    let from = by_deadline(version);
    let end = prefix_end(&from).unwrap_or_default();
    let mut found = None;
    reads.range(sub, Span::between(&from, &end), order, &mut |key, _| {
        found = key.get(from.len()..).and_then(|rest| rest.first_chunk().copied()).map(u64::from_be_bytes);
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Returns whether a key is absent: it has expired, or all its fields have.
///
/// # Errors
/// The store's; if the record is damaged.
pub fn is_absent(reads: &dyn Reads, sub: &Space, main: &Main, now: u64) -> Result<bool> {
    if main.has_expired(now) {
        return Ok(true);
    }
    Ok(main.has_due_fields(now)? && absent_from(reads, sub, main)?.is_some_and(|from| from <= now))
}

/// Returns when a key becomes absent: when it expires, or the last of its fields does.
///
/// # Errors
/// The store's; if the record is damaged.
pub fn absent_from(reads: &dyn Reads, sub: &Space, main: &Main) -> Result<Option<u64>> {
    let expires = Some(main.expires).filter(|expires| *expires != 0);
    let last = match main.deadlines()? {
        Some(deadlines) if deadlines.count == main.shape()?.len => {
            outermost((reads, sub), deadlines.version, Order::Down)?
        }
        _ => None,
    };
    Ok(expires.into_iter().chain(last).min())
}

impl Cx<'_> {
    /// Returns a hash whose first deadline has passed, if it has a field left. Otherwise it removes the key,
    /// if that is possible.
    pub(super) fn with_fields_left(&mut self, key: &[u8], mut main: Main) -> Done<Option<Main>> {
        // The record and the deadlines have to be of one state.
        let snapshot = match &*self.access {
            Access::Now(store) => Some(store.snapshot()),
            Access::At(_) | Access::Write(_) => None,
        };
        let data = self.session.data.clone();
        if let Some(snapshot) = &snapshot {
            let Some(raw) = snapshot.get(&data.main, key)? else { return Ok(None) };
            main = Main::decode(raw)?;
        }
        let reads: &dyn Reads = match &snapshot {
            Some(snapshot) => &**snapshot,
            None => self.access.reads(),
        };
        if !is_absent(reads, &data.sub, &main, self.now)? {
            return Ok(Some(main));
        }
        if self.access.can_write() && !self.server.replication.is_replica() {
            self.remove_without_fields(key, &main)?;
        }
        Ok(None)
    }

    /// Removes a hash all whose fields have expired.
    fn remove_without_fields(&mut self, key: &[u8], main: &Main) -> Done {
        self.server.observed.stats.expired_fields.add(main.shape()?.len);
        self.remove_key(key, main)?;
        self.event(Event::Hash, "hexpired", key);
        self.event(Event::Generic, "del", key);
        Ok(())
    }

    /// Removes some expired fields of a hash. Returns their number.
    fn remove_expired_fields(&mut self, key: &[u8], main: &Main, count_max: usize) -> Done<usize> {
        let mut hash = Collection::of(key, main)?;
        let Some(deadlines) = hash.shape.deadlines else { return Ok(0) };
        let (reads, mut fields) = (self.access.reads(), Vec::new());
        visit_expired((reads, &self.session.data.sub), deadlines.version, self.now, &mut |field| {
            fields.push(field.to_vec());
            if fields.len() < count_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        for field in &fields {
            hash.remove(self, field)?;
            hash.shape.len = hash.shape.len.saturating_sub(1);
        }
        self.server.observed.stats.expired_fields.add(fields.len() as u64);
        hash.save(self)?;
        self.event(Event::Hash, "hexpired", key);
        Ok(fields.len())
    }
}

/// Removes some expired fields of the database. Returns whether there may be more.
///
/// # Errors
/// Errors of the store.
pub fn expire_some_fields(cx: &mut Cx<'_>) -> Done<bool> {
    let data = cx.session.data.clone();
    let (from, end) = (due_key(0, b""), due_key(cx.now + 1, b""));
    let mut due = Vec::new();
    cx.access.reads().range(&data.sub, Span::between(&from, &end), Order::Up, &mut |entry, _| {
        due.push(entry.to_vec());
        if due.len() < AT_A_TIME { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let mut left = AT_A_TIME;
    for entry in &due {
        let Some((first, key)) = split_due(entry) else { continue };
        let raw = cx.access.reads().get(&data.main, key)?;
        match raw.map(Main::decode).transpose()? {
            Some(main) if main.has_expired(cx.now) => cx.remove_expired(key, &main)?,
            Some(main) if main.due()?.fields == first => {
                if is_absent(cx.access.reads(), &data.sub, &main, cx.now)? {
                    cx.remove_without_fields(key, &main)?;
                } else {
                    left = left.saturating_sub(cx.remove_expired_fields(key, &main, left)?);
                }
            }
            // No command leaves such an entry (data.4), but if there is one, it would be met for ever.
            _ => cx.access.transaction()?.remove(&data.sub, entry)?,
        }
        if left == 0 {
            return Ok(true);
        }
    }
    Ok(due.len() == AT_A_TIME)
}

impl Collection {
    /// Returns whether some of the fields have expired but are still stored.
    pub(super) fn has_due_fields(&self, now: u64) -> bool {
        self.shape.deadlines.is_some_and(|deadlines| deadlines.first <= now)
    }

    /// Returns whether a field has expired but is still stored.
    pub(super) fn has_expired(&self, cx: &Cx<'_>, field: &[u8]) -> Done<bool> {
        Ok(self.has_due_fields(cx.expiry_now()) && (1..=cx.expiry_now()).contains(&self.deadline(cx, field)?))
    }

    /// Returns the number of fields that have not expired. Takes time in proportion to the number of those
    /// that have, but are still stored.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn count_fields(&self, cx: &Cx<'_>) -> Done<u64> {
        Ok(self.shape.len.saturating_sub(self.count_expired(cx)?))
    }

    /// Returns the number of fields that have expired but are still stored.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn count_expired(&self, cx: &Cx<'_>) -> Done<u64> {
        let Some(deadlines) = self.shape.deadlines.filter(|deadlines| deadlines.first <= cx.expiry_now())
        else {
            return Ok(0);
        };
        let (mut count, mut done) = (0, Ok(()));
        let at = (cx.access.reads(), &cx.session.data.sub);
        visit_expired(at, deadlines.version, cx.expiry_now(), &mut |field| {
            count += 1;
            done = cx.step(field.len());
            if done.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        done.map(|()| count)
    }

    /// Returns whether no element is left that has not expired.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn is_gone(&self, cx: &Cx<'_>) -> Done<bool> {
        match self.shape.deadlines {
            _ if self.shape.len == 0 => Ok(true),
            Some(deadlines) if deadlines.first <= cx.expiry_now() && deadlines.count == self.shape.len => {
                let at = (cx.access.reads(), &cx.session.data.sub);
                Ok(outermost(at, deadlines.version, Order::Down)?.is_some_and(|last| last <= cx.expiry_now()))
            }
            _ => Ok(false),
        }
    }

    /// Returns when a field expires, in Unix milliseconds; 0: never.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn deadline(&self, cx: &Cx<'_>, field: &[u8]) -> Done<u64> {
        let Some(deadlines) = self.shape.deadlines else { return Ok(0) };
        let value = cx.access.reads().get(&cx.session.data.sub, &field_key(deadlines.version, field))?;
        Ok(value.as_deref().map_or(0, deadline_of))
    }

    /// Sets when a field expires; 0: never. The caller sees to it that there is such a field.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn set_deadline(&mut self, cx: &mut Cx<'_>, field: &[u8], at: u64) -> Done {
        let old = self.deadline(cx, field)?;
        if old == at {
            return Ok(());
        }
        let mut deadlines = match self.shape.deadlines {
            Some(deadlines) => deadlines,
            None => Deadlines { version: cx.new_version()?, first: at, count: 0 },
        };
        let version = deadlines.version;
        let (sub, transaction) = (&cx.session.data.sub, cx.access.transaction()?);
        if old != 0 {
            transaction.remove(sub, &deadline_key(version, old, field))?;
            deadlines.count = deadlines.count.saturating_sub(1);
        }
        if at == 0 {
            transaction.remove(sub, &field_key(version, field))?;
        } else {
            transaction.put(sub, &field_key(version, field), &at.to_le_bytes())?;
            transaction.put(sub, &deadline_key(version, at, field), b"")?;
            deadlines.count += 1;
            deadlines.first = deadlines.first.min(at);
        }
        self.shape.deadlines = Some(deadlines);
        self.has_new_deadlines = true;
        Ok(())
    }

    /// Returns the fields that have a deadline and have not expired (command_memory.1).
    ///
    /// # Errors
    /// The store's; if they are too large.
    pub fn deadlines(&self, cx: &Cx<'_>) -> Done<Vec<(Vec<u8>, u64)>> {
        let Some(deadlines) = self.shape.deadlines else { return Ok(Vec::new()) };
        let from = field_key(deadlines.version, b"");
        let end = prefix_end(&from).unwrap_or_default();
        let (mut found, mut failed) = (Vec::new(), None);
        let sub = &cx.session.data.sub;
        cx.access.reads().range(sub, Span::between(&from, &end), Order::Up, &mut |key, value| {
            let (field, at) = (&key[from.len()..], deadline_of(value));
            if let Err(fail) = cx.gather(key.len()) {
                failed = Some(fail);
                return ControlFlow::Break(());
            }
            if at > cx.expiry_now() {
                found.push((field.to_vec(), at));
            }
            ControlFlow::Continue(())
        })?;
        failed.map_or(Ok(found), Err)
    }

    /// Makes the first deadline of the main record exact again, once deadlines were changed (data.4).
    pub(super) fn settle_deadlines(&mut self, cx: &Cx<'_>) -> Done {
        let Some(deadlines) = self.shape.deadlines.filter(|_| self.has_new_deadlines) else { return Ok(()) };
        let first = outermost((cx.access.reads(), &cx.session.data.sub), deadlines.version, Order::Up)?;
        self.shape.deadlines = first.map(|first| Deadlines { first, ..deadlines });
        Ok(())
    }
}

/// A stored deadline. Damage reads as a deadline that has passed long ago.
fn deadline_of(value: &[u8]) -> u64 {
    value.try_into().map_or(1, u64::from_le_bytes)
}

/// Checks the records of the deadlines of a hash (data.4). `has_field` returns whether the hash has a field.
///
/// # Errors
/// What is wrong.
pub(super) fn check_deadlines(
    deadlines: &Deadlines,
    records: &super::check::Parts,
    has_field: &dyn Fn(&[u8]) -> bool,
) -> std::result::Result<(), super::check::Problem> {
    let split = records.partition_point(|record| record.0.first() == Some(&BY_FIELD));
    let (by_field, by_deadline) = records.split_at(split);
    if by_field.len() as u64 != deadlines.count {
        return Err("the number of deadlines is not that of fields with a deadline");
    }
    let mut entries = Vec::with_capacity(by_field.len());
    for (sub, value) in by_field {
        let at: [u8; 8] = value.as_slice().try_into().map_err(|_| "a deadline is cut off")?;
        let at = u64::from_le_bytes(at);
        if at == 0 || !has_field(&sub[1..]) {
            return Err("a field that does not exist has a deadline");
        }
        entries.push([&[BY_DEADLINE], &at.to_be_bytes()[..], &sub[1..]].concat());
    }
    entries.sort_unstable();
    let is_same =
        entries.iter().zip(by_deadline).all(|(entry, record)| *entry == record.0 && record.1.is_empty());
    if entries.len() != by_deadline.len() || !is_same {
        return Err("the order of deadlines is not that of the deadlines");
    }
    let first = entries.first().and_then(|entry| entry[1..].first_chunk().copied()).map(u64::from_be_bytes);
    if first == Some(deadlines.first) { Ok(()) } else { Err("the first deadline is not that of a field") }
}
