//! A collection: an ordered map of sub-keys of one key. All types except strings are built on it.
//!
//! ```text
//!   small: all parts in the main record         one read, one write
//!   else:  main record, parts as separate records
//! ```
//!
//! `save` comes last and stores the changes. A collection that is empty by then is removed.

use std::ops::{Bound, ControlFlow};

use super::small;
use super::subkey::parts_prefix;
use crate::base::accesses::Note;
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::run::memory::each_value;
use crate::store::record::{Due, Kind, Main, Shape, encode_collection};
use crate::store::{Order, Span, Value, Visit, prefix_end};

/// Like `Visit`, but may fail.
pub type TryVisit<'a> = dyn FnMut(&[u8], &[u8]) -> Done<ControlFlow<()>> + 'a;

/// The parts of a collection and the deadlines of its fields, without what has expired.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Sub-keys and values, in order.
    pub parts: Vec<(Vec<u8>, Vec<u8>)>,
    /// Fields and their deadlines, in the order of fields.
    pub deadlines: Vec<(Vec<u8>, u64)>,
}

/// A collection that is being read or changed.
pub struct Collection {
    key: Vec<u8>,
    kind: Kind,
    expires: u64,
    /// Number of stored elements, and the numbers that its type needs.
    pub shape: Shape,
    /// Whether deadlines of fields were changed.
    pub(super) has_new_deadlines: bool,
    small: Option<Vec<u8>>,
    prefix: [u8; 8],
    /// The times of the stored main record, if there is one.
    stored: Option<Due>,
}

impl Collection {
    /// Opens the collection of a key, if there is one.
    ///
    /// # Errors
    /// If the key holds another kind; the store's.
    pub fn open(cx: &mut Cx<'_>, key: &[u8], kind: Kind) -> Done<Option<Self>> {
        cx.main_of(key, kind)?.map(|main| Self::of(key, &main)).transpose()
    }

    /// Opens the collection of a main record.
    ///
    /// # Errors
    /// If the record is damaged.
    pub fn of(key: &[u8], main: &Main) -> Done<Self> {
        let shape = main.shape()?;
        Ok(Collection {
            key: key.to_vec(),
            kind: main.kind,
            expires: main.expires,
            has_new_deadlines: false,
            small: main.small().map(<[u8]>::to_vec),
            prefix: parts_prefix(shape.version),
            shape,
            stored: Some(main.due()?),
        })
    }

    /// Opens the collection of a key, or begins a new one.
    ///
    /// # Errors
    /// If the key holds another kind; the store's.
    pub fn open_or_new(cx: &mut Cx<'_>, key: &[u8], kind: Kind) -> Done<Self> {
        match Self::open(cx, key, kind)? {
            Some(found) => Ok(found),
            None => Self::new(cx, key, kind),
        }
    }

    /// Begins a new one, at a key that holds nothing.
    ///
    /// # Errors
    /// If the command may not write.
    pub fn new(cx: &mut Cx<'_>, key: &[u8], kind: Kind) -> Done<Self> {
        let shape = Shape { version: cx.new_version()?, ..Shape::default() };
        Ok(Collection {
            key: key.to_vec(),
            kind,
            expires: 0,
            has_new_deadlines: false,
            small: Some(Vec::new()),
            prefix: parts_prefix(shape.version),
            shape,
            stored: None,
        })
    }

    /// Returns whether it is not stored yet.
    pub fn is_new(&self) -> bool {
        self.stored.is_none()
    }

    /// Its key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Number of stored elements. Those of a hash may have expired: see
    /// [`count_fields`](Self::count_fields).
    pub fn len(&self) -> u64 {
        self.shape.len
    }

    /// Returns whether no element is stored.
    pub fn is_empty(&self) -> bool {
        self.shape.len == 0
    }

    fn part_key(&self, sub: &[u8]) -> Vec<u8> {
        [&self.prefix, sub].concat()
    }

    /// The value of a sub-key.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn get(&self, cx: &Cx<'_>, sub: &[u8]) -> Done<Option<Value>> {
        cx.step(sub.len())?;
        if self.has_expired(cx, sub)? {
            return Ok(None);
        }
        match &self.small {
            Some(small) => Ok(small::get(small, sub).map(Value::from)),
            None => Ok(cx.access.reads().get(&cx.session.data.sub, &self.part_key(sub))?),
        }
    }

    /// Passes the values of several sub-keys to `visit`, in order (command_memory.1).
    ///
    /// # Errors
    /// The store's; those of `visit`.
    pub fn each_value(
        &self,
        cx: &Cx<'_>,
        subs: &[&[u8]],
        mut visit: impl FnMut(Option<&[u8]>) -> Done,
    ) -> Done {
        if self.small.is_some() || self.has_due_fields(cx.expiry_now()) {
            return subs.iter().try_for_each(|sub| visit(self.get(cx, sub)?.as_deref()));
        }
        let keys: Vec<_> = subs.iter().map(|sub| self.part_key(sub)).collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let (reads, space) = (cx.access.reads(), &cx.session.data.sub);
        let read = |keys: &[&[u8]], bytes_max| reads.multi_get(space, keys, bytes_max);
        each_value(&keys, read, |value| {
            cx.step(value.as_ref().map_or(0, |value| value.len()))?;
            visit(value.as_deref())
        })
    }

    /// Sets a sub-key. A field that has not expired keeps its deadline.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn put(&mut self, cx: &mut Cx<'_>, sub: &[u8], value: &[u8]) -> Done {
        cx.step(sub.len() + value.len())?;
        if self.has_expired(cx, sub)? {
            // The caller counts the field as a new one.
            self.set_deadline(cx, sub, 0)?;
            self.shape.len = self.shape.len.saturating_sub(1);
        }
        if let Some(small) = &mut self.small {
            if small::put(small, sub, value) {
                return Ok(());
            }
            self.spill(cx)?;
        }
        Ok(cx.access.transaction()?.put(&cx.session.data.sub, &self.part_key(sub), value)?)
    }

    /// Removes a sub-key, and the deadline of a field.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn remove(&mut self, cx: &mut Cx<'_>, sub: &[u8]) -> Done {
        self.set_deadline(cx, sub, 0)?;
        if let Some(small) = &mut self.small {
            small::remove(small, sub);
            return Ok(());
        }
        Ok(cx.access.transaction()?.remove(&cx.session.data.sub, &self.part_key(sub))?)
    }

    /// Removes all sub-keys with this prefix. The time does not grow with their number.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn remove_all_with(&mut self, cx: &mut Cx<'_>, prefix: &[u8]) -> Done {
        if let Some(small) = &mut self.small {
            let mut found = Vec::new();
            let end = prefix_end(prefix).unwrap_or_default();
            small::range(small, Span::between(prefix, &end), Order::Up, &mut |sub, _| {
                found.push(sub.to_vec());
                ControlFlow::Continue(())
            });
            found.iter().for_each(|sub| small::remove(small, sub));
            return Ok(());
        }
        let from = self.part_key(prefix);
        let end = prefix_end(&from).unwrap_or_default();
        Ok(cx.access.transaction()?.delete_range(&cx.session.data.sub, Span::between(&from, &end))?)
    }

    /// Turns all parts into separate records.
    fn spill(&mut self, cx: &mut Cx<'_>) -> Done {
        let Some(small) = self.small.take() else { return Ok(()) };
        let mut parts = Vec::new();
        small::range(&small, Span::ALL, Order::Up, &mut |sub, value| {
            parts.push((self.part_key(sub), value.to_vec()));
            ControlFlow::Continue(())
        });
        let transaction = cx.access.transaction()?;
        for (key, value) in parts {
            transaction.put(&cx.session.data.sub, &key, &value)?;
        }
        Ok(())
    }

    /// Passes the parts of a range of sub-keys to `visit`.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn range(&self, cx: &Cx<'_>, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Done {
        self.try_range(cx, span, order, &mut |sub, value| Ok(visit(sub, value)))
    }

    /// Same as `range`, but `visit` may fail.
    ///
    /// # Errors
    /// The store's; those of `visit`.
    pub fn try_range(&self, cx: &Cx<'_>, span: Span<'_>, order: Order, visit: &mut TryVisit<'_>) -> Done {
        let (mut failed, is_due) = (None, self.has_due_fields(cx.expiry_now()));
        let mut visit = |sub: &[u8], value: &[u8]| {
            cx.step(sub.len() + value.len())?;
            match is_due && self.has_expired(cx, sub)? {
                true => Ok(ControlFlow::Continue(())),
                false => visit(sub, value),
            }
        };
        self.walk(cx, span, order, &mut |sub, value| match visit(sub, value) {
            Ok(flow) => flow,
            Err(fail) => {
                failed = Some(fail);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn walk(&self, cx: &Cx<'_>, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Done {
        if span.is_empty() {
            return Ok(());
        }
        if let Some(small) = &self.small {
            small::range(small, span, order, visit);
            return Ok(());
        }
        let (lower, upper, end);
        let lower = match span.lower {
            Bound::Unbounded => Bound::Included(&self.prefix[..]),
            Bound::Included(sub) => {
                lower = self.part_key(sub);
                Bound::Included(lower.as_slice())
            }
            Bound::Excluded(sub) => {
                lower = self.part_key(sub);
                Bound::Excluded(lower.as_slice())
            }
        };
        let upper = match span.upper {
            Bound::Unbounded => {
                end = prefix_end(&self.prefix);
                end.as_ref().map_or(Bound::Unbounded, |end| Bound::Excluded(end.as_slice()))
            }
            Bound::Included(sub) => {
                upper = self.part_key(sub);
                Bound::Included(upper.as_slice())
            }
            Bound::Excluded(sub) => {
                upper = self.part_key(sub);
                Bound::Excluded(upper.as_slice())
            }
        };
        let skip = self.prefix.len();
        let mut inner = |key: &[u8], value: &[u8]| visit(&key[skip..], value);
        let reads = cx.access.reads();
        Ok(reads.range(&cx.session.data.sub, Span { lower, upper }, order, &mut inner)?)
    }

    /// Copies a main record with its parts to a key of the current database, and saves the copy.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn save_copy(cx: &mut Cx<'_>, key: &[u8], main: &Main, parts: &Copied) -> Done {
        let mut copy = Self::new(cx, key, main.kind)?;
        copy.expires = main.expires;
        // The versions differ. Otherwise both would share parts once they grow.
        copy.shape = Shape { version: copy.shape.version, deadlines: None, ..main.shape()? };
        if main.kind == Kind::Hash {
            copy.shape.len = parts.parts.len() as u64;
        }
        for (sub, value) in &parts.parts {
            copy.put(cx, sub, value)?;
        }
        for (field, at) in &parts.deadlines {
            copy.set_deadline(cx, field, *at)?;
        }
        copy.save(cx)
    }

    /// What a copy needs beside the main record (command_memory.1).
    ///
    /// # Errors
    /// See [`parts`](Self::parts).
    pub fn copied(&self, cx: &Cx<'_>) -> Done<Copied> {
        Ok(Copied { parts: self.parts(cx)?, deadlines: self.deadlines(cx)? })
    }

    /// All parts (command_memory.1).
    ///
    /// # Errors
    /// The store's; if they are too large.
    pub fn parts(&self, cx: &Cx<'_>) -> Done<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut parts = Vec::new();
        self.try_range(cx, Span::ALL, Order::Up, &mut |sub, value| {
            cx.gather(sub.len() + value.len())?;
            parts.push((sub.to_vec(), value.to_vec()));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(parts)
    }

    /// All sub-keys (command_memory.1).
    ///
    /// # Errors
    /// See [`parts`](Self::parts).
    pub fn subs(&self, cx: &Cx<'_>) -> Done<Vec<Vec<u8>>> {
        let mut subs = Vec::new();
        self.try_range(cx, Span::ALL, Order::Up, &mut |sub, _| {
            cx.gather(sub.len())?;
            subs.push(sub.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(subs)
    }

    /// Stores all changes. Parts that are separate records are stored already.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn save(mut self, cx: &mut Cx<'_>) -> Done {
        if self.is_gone(cx)? && self.kind != Kind::Stream {
            self.retire_expired_fields(cx)?;
            if let Some(was_due) = self.stored {
                cx.forget_main(&self.key, was_due)?;
            }
            cx.touch(&self.key);
            return Ok(());
        }
        self.settle_deadlines(cx)?;
        if self.is_new() {
            cx.note_access(&self.key, Note::Created);
        }
        let due =
            Due { key: self.expires, fields: self.shape.deadlines.map_or(0, |deadlines| deadlines.first) };
        let mut bytes = std::mem::take(&mut cx.effects.scratch);
        bytes.clear();
        encode_collection(&mut bytes, self.kind, self.expires, &self.shape, self.small.as_deref());
        let stored = cx.store_main(&self.key, self.stored.unwrap_or_default(), due, &bytes);
        cx.effects.scratch = bytes;
        stored
    }

    /// Makes what is left of a hash without fields garbage: fields that have expired but are still stored.
    fn retire_expired_fields(&self, cx: &mut Cx<'_>) -> Done {
        if self.is_empty() {
            return Ok(());
        }
        if self.small.is_none() {
            cx.retire_version(self.shape.version)?;
        }
        self.shape.deadlines.map_or(Ok(()), |deadlines| cx.retire_version(deadlines.version))
    }
}
