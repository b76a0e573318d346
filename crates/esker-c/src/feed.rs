//! `esker_feed`: every durable commit, in order.

use std::mem::MaybeUninit;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker::{Feed, FeedChange, FeedCommit, FeedOperand, SeqNo};

use crate::call::{ErrorPlace, Failure, call, given, set};
use crate::db::esker_db;
use crate::slice::esker_slice;
use crate::status::esker_status::{self, ESKER_NOT_FOUND};

/// `key` was set to `value`.
pub const ESKER_CHANGE_PUT: u32 = 1;
/// `value` was merged into `key`, as an operand.
pub const ESKER_CHANGE_MERGE: u32 = 2;
/// `key` was removed, or did not exist.
pub const ESKER_CHANGE_DELETE: u32 = 3;
/// `key` was removed because it has expired.
pub const ESKER_CHANGE_EXPIRE: u32 = 4;
/// All keys from `key` on, below `value`, were removed. NULL as `value.data`: to the end of the keyspace.
pub const ESKER_CHANGE_DELETE_RANGE: u32 = 5;
/// The keyspace got the name `value`: it was created or renamed.
pub const ESKER_CHANGE_NAMED: u32 = 6;
/// The name `value` is free: its keyspace was dropped or renamed. `keyspace` is 0.
pub const ESKER_CHANGE_UNNAMED: u32 = 7;
/// Another change of the catalog, such as an option of a keyspace.
pub const ESKER_CHANGE_OTHER: u32 = 8;

/// A change made by a commit.
#[repr(C)]
pub struct esker_change<'a> {
    /// ESKER_CHANGE_... A program has to expect new kinds.
    kind: u32,
    /// The number of the keyspace: see esker_keyspace_id.
    keyspace: u32,
    /// The key.
    key: esker_slice<'a>,
    /// The value.
    value: esker_slice<'a>,
    /// When a value that was put expires, in milliseconds since 1970. 0: never.
    expires_at: u64,
    /// When an operand was merged, in milliseconds since 1970.
    merged_at: u64,
    /// Milliseconds that a value which begins with this operand lasts, after `merged_at`. 0: for ever.
    lifetime: u64,
}

/// A reader of the change feed. One thread at a time may use it. Free it with esker_feed_free.
pub struct esker_feed {
    feed: Feed,
    commit: Option<FeedCommit>,
    change: Change,
}

/// The last change, as it is lent to the caller.
#[derive(Default)]
struct Change {
    kind: u32,
    keyspace: u32,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    expires_at: u64,
    merged_at: u64,
    lifetime: u64,
    /// Further operands of a merge, the next one last.
    operands: Vec<OwnedOperand>,
}

/// A merge operand with its time and lifetime in milliseconds.
struct OwnedOperand {
    bytes: Vec<u8>,
    merged_at: u64,
    lifetime: u64,
}

impl OwnedOperand {
    fn of(operand: &FeedOperand<'_>) -> OwnedOperand {
        OwnedOperand {
            bytes: operand.bytes().to_vec(),
            merged_at: ms_since_1970(operand.merged_at()),
            lifetime: operand.lifetime().map_or(0, whole_ms),
        }
    }
}

impl Change {
    fn of(change: &FeedChange<'_>) -> esker::Result<Change> {
        let of = |kind, keyspace: esker::KeyspaceId, key: &[u8], value: Option<&[u8]>| Change {
            kind,
            keyspace: keyspace.get(),
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
            ..Change::default()
        };
        let name = |kind, keyspace, name: &str| Change {
            kind,
            keyspace,
            value: Some(name.as_bytes().to_vec()),
            ..Change::default()
        };
        Ok(match change {
            FeedChange::Put { keyspace, key, value } => Change {
                expires_at: value.expires_at().map_or(0, ms_since_1970),
                ..of(ESKER_CHANGE_PUT, *keyspace, key, Some(&value.read()?))
            },
            FeedChange::Merge { keyspace, key, operands } => {
                let operands = operands.iter().rev().map(OwnedOperand::of).collect();
                let mut change = Change { operands, ..of(ESKER_CHANGE_MERGE, *keyspace, key, None) };
                change.takes_operand();
                change
            }
            FeedChange::Delete { keyspace, key } => of(ESKER_CHANGE_DELETE, *keyspace, key, None),
            FeedChange::Expire { keyspace, key } => of(ESKER_CHANGE_EXPIRE, *keyspace, key, None),
            FeedChange::DeleteRange { keyspace, start, end } => {
                of(ESKER_CHANGE_DELETE_RANGE, *keyspace, start, *end)
            }
            FeedChange::Named { keyspace, name: text } => name(ESKER_CHANGE_NAMED, keyspace.get(), text),
            FeedChange::Unnamed { name: text } => name(ESKER_CHANGE_UNNAMED, 0, text),
            _ => Change { kind: ESKER_CHANGE_OTHER, ..Change::default() },
        })
    }

    /// Becomes the merge of the next operand. Returns false if there is none.
    fn takes_operand(&mut self) -> bool {
        let Some(OwnedOperand { bytes, merged_at, lifetime }) = self.operands.pop() else { return false };
        (self.value, self.merged_at, self.lifetime) = (Some(bytes), merged_at, lifetime);
        true
    }

    fn lend(&self) -> esker_change<'_> {
        esker_change {
            kind: self.kind,
            keyspace: self.keyspace,
            key: esker_slice::of(&self.key),
            value: self.value.as_deref().map_or(esker_slice::null(), esker_slice::of),
            expires_at: self.expires_at,
            merged_at: self.merged_at,
            lifetime: self.lifetime,
        }
    }
}

fn ms_since_1970(time: SystemTime) -> u64 {
    whole_ms(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Begins to read the commits after the commit `after`; 0 is before the first one. Store the number of the
/// last commit that was processed, and resume after it.
///
/// Errors: ESKER_NO_FEED; ESKER_GONE if the commits are no longer kept; ESKER_FEED_AHEAD.
#[unsafe(no_mangle)]
pub extern "C" fn esker_feed_after(
    db: Option<&esker_db>,
    after: u64,
    feed: Option<&mut MaybeUninit<Option<Box<esker_feed>>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let (db, place) = (&given(db, "db")?.db, given(feed, "feed")?);
        let after = SeqNo::try_new(after).ok_or_else(|| Failure::invalid("there are no such commits"))?;
        let feed = db.feed_after(after)?;
        place.write(Some(Box::new(esker_feed { feed, commit: None, change: Change::default() })));
        Ok(())
    })
}

/// Moves to the next commit and sets `seqno` to its number. ESKER_NOT_FOUND: none came in `milliseconds`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_feed_next(
    feed: Option<&mut esker_feed>,
    milliseconds: u64,
    seqno: Option<&mut MaybeUninit<u64>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let feed = given(feed, "feed")?;
        (feed.commit, feed.change) = (None, Change::default());
        feed.commit = feed.feed.next_within(Duration::from_millis(milliseconds))?;
        let commit = feed.commit.as_ref().ok_or(Failure::Status(ESKER_NOT_FOUND))?;
        set(seqno, commit.seqno().get());
        Ok(())
    })
}

/// Sets `change` to the next change of the commit. What it points to is valid until the next call for this
/// reader. ESKER_NOT_FOUND: the commit has no more changes.
#[unsafe(no_mangle)]
pub extern "C" fn esker_feed_change<'a>(
    feed: Option<&'a mut esker_feed>,
    change: Option<&mut MaybeUninit<esker_change<'a>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let (feed, place) = (given(feed, "feed")?, given(change, "change")?);
        if !feed.change.takes_operand() {
            let commit = feed.commit.as_mut().ok_or(Failure::Status(ESKER_NOT_FOUND))?;
            let change = commit.next_change()?.ok_or(Failure::Status(ESKER_NOT_FOUND))?;
            feed.change = Change::of(&change)?;
        }
        place.write(feed.change.lend());
        Ok(())
    })
}

/// Frees a reader. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_feed_free(feed: Option<Box<esker_feed>>) {
    drop(feed);
}
