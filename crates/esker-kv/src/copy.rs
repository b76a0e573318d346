//! Copies a space from one store to another.
//!
//! Both sides are walked in order, and only what differs is written. So a copy that was interrupted goes on
//! where it ended, at the cost of reading both sides up to there, and a second copy of a store that has
//! changed writes only the changes.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use crate::kv::{Kv, Reads};
use crate::page::{Entry, Query};
use crate::{Error, Result, Space, Span, transact};

/// Bytes of keys and values in a commit.
const BATCH_BYTES: u64 = 1 << 20;
/// How often a commit is tried if the store does not answer, and how long to wait in between.
const ATTEMPTS: u32 = 30;
const PAUSE: Duration = Duration::from_secs(1);

/// What a copy has found and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Entries of the source.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Entries that were written because the target lacked them or had another value.
    pub written: u64,
    /// Keys that only the target has, or had, if they were removed.
    pub extra: u64,
}

/// One side of a copy: the entries of a space, page by page.
struct Walk<'a> {
    reads: &'a dyn Reads,
    space: &'a Space,
    page: VecDeque<Entry>,
    last: Option<Bytes>,
    is_over: bool,
}

impl<'a> Walk<'a> {
    fn new(reads: &'a dyn Reads, space: &'a Space) -> Self {
        Walk { reads, space, page: VecDeque::new(), last: None, is_over: false }
    }

    fn first(&mut self) -> Result<Option<&Entry>> {
        if self.page.is_empty() && !self.is_over {
            let span = match &self.last {
                Some(key) => Span { lower: std::ops::Bound::Excluded(key), ..Span::ALL },
                None => Span::ALL,
            };
            let page = again(|| self.reads.page(self.space, Query::new(span)))?;
            self.is_over = !page.has_more || page.entries.is_empty();
            self.last = page.entries.last().map(|(key, _)| key.clone());
            self.page = page.entries.into();
        }
        Ok(self.page.front())
    }

    fn next(&mut self) -> Option<Entry> {
        self.page.pop_front()
    }
}

/// Makes a call again while the store does not answer.
#[expect(clippy::disallowed_methods, reason = "stores of other processes have no simulated clock")]
fn again<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempt = 1;
    loop {
        match call() {
            // A write of a copy may be made twice.
            Err(Error::Unavailable(_) | Error::OutcomeUnknown(_)) if attempt < ATTEMPTS => {
                thread::sleep(PAUSE);
                attempt += 1;
            }
            done => return done,
        }
    }
}

/// Makes the entries of a space those of another one. With `removes`, keys that only the target has are
/// removed. `tick` is called now and then. `source` must not change meanwhile: a snapshot.
///
/// # Errors
/// Those of the stores. What was written until then stays: run the copy again.
pub fn copy(
    source: (&dyn Reads, &Space),
    target: (&dyn Kv, &Space),
    removes: bool,
    tick: &mut dyn FnMut(&Copied),
) -> Result<Copied> {
    let (kv, space) = target;
    let batch_bytes = BATCH_BYTES.min(kv.limits().transaction_bytes / 2);
    let (mut changes, mut bytes) = (Vec::new(), 0);
    let mut copied = Copied::default();
    let mut last_tick = 0;
    differences(source, (kv as &dyn Reads, space), &mut copied, &mut |copied, key, value| {
        if value.is_some() || removes {
            bytes += (key.len() + value.as_ref().map_or(0, Bytes::len)) as u64;
            changes.push((key, value));
        }
        if bytes >= batch_bytes {
            commit(kv, space, &mut changes)?;
            bytes = 0;
        }
        if copied.bytes - last_tick >= batch_bytes {
            last_tick = copied.bytes;
            tick(copied);
        }
        Ok(())
    })?;
    commit(kv, space, &mut changes)?;
    Ok(copied)
}

/// Compares the entries of two spaces: `written` and `extra` count what differs.
///
/// # Errors
/// Those of the stores.
pub fn compare(source: (&dyn Reads, &Space), target: (&dyn Reads, &Space)) -> Result<Copied> {
    let mut found = Copied::default();
    differences(source, target, &mut found, &mut |_, _, _| Ok(()))?;
    Ok(found)
}

/// Called with a key that differs, and its value in the source.
type Differs<'a> = dyn FnMut(&Copied, Bytes, Option<Bytes>) -> Result<()> + 'a;

fn differences(
    (source, from): (&dyn Reads, &Space),
    (target, to): (&dyn Reads, &Space),
    copied: &mut Copied,
    differs: &mut Differs<'_>,
) -> Result<()> {
    let (mut source, mut target) = (Walk::new(source, from), Walk::new(target, to));
    loop {
        let order = match (source.first()?, target.first()?) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let entry = if order == Ordering::Greater { None } else { source.next() };
        let other = if order == Ordering::Less { None } else { target.next() };
        match (entry, other) {
            (Some((key, value)), other) => {
                copied.entries += 1;
                copied.bytes += (key.len() + value.len()) as u64;
                if other.is_none_or(|(_, old)| old != value) {
                    copied.written += 1;
                    differs(copied, key, Some(value))?;
                }
            }
            (None, Some((key, _))) => {
                copied.extra += 1;
                differs(copied, key, None)?;
            }
            (None, None) => return Ok(()),
        }
    }
}

fn commit(kv: &dyn Kv, space: &Space, changes: &mut Vec<(Bytes, Option<Bytes>)>) -> Result<()> {
    if !changes.is_empty() {
        again(|| {
            transact(kv, |transaction| {
                changes.iter().try_for_each(|(key, value)| match value {
                    Some(value) => transaction.put(space, key, value),
                    None => transaction.remove(space, key),
                })
            })
        })?;
    }
    changes.clear();
    Ok(())
}
