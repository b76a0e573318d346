//! `SharedRange`: the entries of a range, from either end.
//!
//! ```text
//!   host, outside of a transaction: the engine's Range
//!   otherwise: pages from both ends of what is left; the host holds a snapshot if there is more than one
//! ```

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use esker::{Key, Value};

use crate::error::{Error, Result, unexpected};
use crate::guest::Link;
use crate::held::HeldLink;
use crate::inner::Opened;
use crate::protocol::{At, Bytes, Owned, Page, Reply, Request};

/// Entries of the first page, and of the largest.
const COUNT_MIN: u32 = 128;
const COUNT_MAX: u32 = 4096;

/// Largest number of keys in one request.
pub(crate) const KEYS_MAX: usize = 1 << 12;

/// The entries of a range in the order of their keys, from either end. Shows one state: that of its
/// beginning, or of its snapshot. In a transaction, later pages also show writes made after the iterator
/// began.
#[must_use = "iterators are lazy"]
pub struct SharedRange(Repr);

enum Repr {
    Native(Box<esker::Range>),
    Paged(Box<Paged>),
    Failed(Option<Error>),
}

/// Where pages come from.
enum Source {
    /// The newest state. `None`: before the first page, and after the last one.
    Own(Option<Link>),
    Held(Arc<HeldLink>),
}

struct Paged {
    inner: Arc<Opened>,
    source: Source,
    keyspace: u32,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    keys_only: bool,
    count: u32,
    front: VecDeque<(Owned, Owned)>,
    /// Read from the upper end; the first one is the largest.
    back: VecDeque<(Owned, Owned)>,
    /// Whether there is nothing between `front` and `back`.
    is_done: bool,
}

impl SharedRange {
    pub(crate) fn native(range: esker::Range) -> Self {
        SharedRange(Repr::Native(Box::new(range)))
    }

    pub(crate) fn failed(error: Error) -> Self {
        SharedRange(Repr::Failed(Some(error)))
    }

    /// A range of the newest state.
    pub(crate) fn now(inner: &Arc<Opened>, keyspace: u32, range: &impl esker::KeyBounds) -> Self {
        Self::paged(inner, Source::Own(None), keyspace, range)
    }

    /// A range of a snapshot or transaction.
    pub(crate) fn held(
        inner: &Arc<Opened>,
        held: &Arc<HeldLink>,
        keyspace: u32,
        range: &impl esker::KeyBounds,
    ) -> Self {
        Self::paged(inner, Source::Held(held.clone()), keyspace, range)
    }

    fn paged(inner: &Arc<Opened>, source: Source, keyspace: u32, range: &impl esker::KeyBounds) -> Self {
        SharedRange(Repr::Paged(Box::new(Paged {
            inner: inner.clone(),
            source,
            keyspace,
            lower: range.lower().map(<[u8]>::to_vec),
            upper: range.upper().map(<[u8]>::to_vec),
            keys_only: false,
            count: COUNT_MIN,
            front: VecDeque::new(),
            back: VecDeque::new(),
            is_done: false,
        })))
    }

    /// Reads single entries instead of pages, for a caller that wants one.
    pub(crate) fn of_one(mut self) -> Self {
        if let Repr::Paged(paged) = &mut self.0 {
            paged.count = 1;
        }
        self
    }

    /// The keys alone. Values are not sent.
    pub fn keys(mut self) -> impl DoubleEndedIterator<Item = Result<Key>> {
        if let Repr::Paged(paged) = &mut self.0 {
            paged.keys_only = true;
        }
        self.map(|entry| entry.map(|(key, _)| key))
    }

    fn step(&mut self, is_reverse: bool) -> Option<Result<(Key, Value)>> {
        let paged = match &mut self.0 {
            Repr::Native(range) => {
                let next = if is_reverse { range.next_back() } else { range.next() };
                return next.map(|entry| entry.map_err(Error::from));
            }
            Repr::Failed(error) => return error.take().map(Err),
            Repr::Paged(paged) => paged,
        };
        match paged.step(is_reverse) {
            Ok(entry) => entry.map(|(key, value)| Ok((Key::from(&*key.0), value.0))),
            Err(error) => {
                // After an error nothing follows.
                self.0 = Repr::Failed(None);
                Some(Err(error))
            }
        }
    }
}

impl Paged {
    fn step(&mut self, is_reverse: bool) -> Result<Option<(Owned, Owned)>> {
        let is_empty = if is_reverse { self.back.is_empty() } else { self.front.is_empty() };
        if is_empty && !self.is_done {
            self.read(is_reverse)?;
        }
        Ok(match is_reverse {
            false => self.front.pop_front().or_else(|| self.back.pop_back()),
            true => self.back.pop_front().or_else(|| self.front.pop_back()),
        })
    }

    /// Reads a page from one end of what is left.
    fn read(&mut self, is_reverse: bool) -> Result<()> {
        let at = match &self.source {
            Source::Own(None) => At::Now,
            _ => At::Held,
        };
        let page = Page {
            lower: self.lower.as_ref().map(|key| Bytes(key)),
            upper: self.upper.as_ref().map(|key| Bytes(key)),
            is_reverse,
            count_max: self.count,
            keys_only: self.keys_only,
        };
        let request = Request::Page(at, self.keyspace, page);
        let reply = match &mut self.source {
            Source::Own(own @ None) => {
                let (reply, link) = self.inner.read_with(&request)?;
                *own = Some(link);
                reply
            }
            Source::Own(Some(link)) => self.inner.ask(link, &request)?,
            Source::Held(held) => held.ask(&request, &self.inner)?,
        };
        let Reply::Page { entries, is_last } = reply else { return Err(unexpected()) };
        if entries.is_empty() && !is_last {
            return Err(unexpected());
        }
        self.is_done = is_last;
        self.count = self.count.saturating_mul(4).min(COUNT_MAX);
        if let Some((key, _)) = entries.last() {
            let bound = Bound::Excluded(key.0.to_vec());
            *(if is_reverse { &mut self.upper } else { &mut self.lower }) = bound;
        }
        let ahead = if is_reverse { &mut self.back } else { &mut self.front };
        ahead.extend(entries);
        if is_last && let Source::Own(own) = &mut self.source {
            // The host holds a snapshot if there was a page before.
            let link = own.take();
            match at {
                At::Now => link.into_iter().for_each(|link| self.inner.give_back(link)),
                At::Held => link.into_iter().for_each(|link| self.inner.release(link)),
            }
        }
        Ok(())
    }
}

impl Drop for Paged {
    fn drop(&mut self) {
        if let Source::Own(own) = &mut self.source {
            own.take().into_iter().for_each(|link| self.inner.release(link));
        }
    }
}

/// Reads values of several keys, in as many parts as the host sends.
pub(crate) fn multi_get(
    keys: &[&[u8]],
    mut part: impl FnMut(Vec<Bytes<'_>>) -> Result<Reply>,
) -> Result<Vec<Option<Value>>> {
    let mut values = Vec::with_capacity(keys.len());
    while values.len() < keys.len() {
        let left = &keys[values.len()..];
        let left = &left[..left.len().min(KEYS_MAX)];
        let Reply::Values(read) = part(left.iter().map(|key| Bytes(key)).collect())? else {
            return Err(unexpected());
        };
        if read.is_empty() || read.len() > left.len() {
            return Err(unexpected());
        }
        values.extend(read.into_iter().map(|value| value.map(|value| value.0)));
    }
    Ok(values)
}

impl Iterator for SharedRange {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl DoubleEndedIterator for SharedRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}
