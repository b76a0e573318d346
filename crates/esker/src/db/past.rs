//! The past of a keyspace that keeps history.
//!
//! ```text
//!   at(n) --> Past: the same reads, as of commit n          get_at(key, n)
//!   versions(key) --> what the key was, newest first
//!   since(n) --> Changes: what has changed since commit n
//! ```

use std::sync::Arc;

use super::bounds::encode_bounds;
use super::handles::ReadState;
use super::key_handle::Key;
use super::keyspace::Keyspace;
use crate::engine::state::history::{History, PastSource};
use crate::engine::state::reads::ReadSource;
use crate::read::point::{PointQuery, ValueAsMade, ValueOf};
use crate::read::versions::NewerCursor;
use crate::read::view::ReadView;
use crate::types::bounds::Bounds;
use crate::types::canary::{self, Canary};
use crate::types::key::{KeyBuf, decode_key, encode_key, keyspace_end};
use crate::types::limits::check_key;
use crate::types::{Result, SeqNo, Value};

impl Keyspace {
    /// What this keyspace keeps of older versions from now on: for reads of the past ([`at`](Self::at), [`get_at`](Self::get_at),
    /// [`versions`](Self::versions)), and for dumps of what has changed ([`since`](Self::since)). Default [`History::None`]. This is kept in the
    /// database, and is [`Sync`](crate::Durability::Sync).
    ///
    /// History begins with this call: what went before is gone. With a shorter one, what is beyond it goes when compactions pass. With a duration
    /// the time is that of the wall clock, and is looked at with flushes: the keyspace can be read at all states of that time, and at older ones,
    /// too, until the next flush and compaction. Of what lies long ago the border is known to a tenth of its age.
    ///
    /// Merges are versions, too: with [`History::Versions`] one counts as a put of what it makes. What it stands on is kept with it.
    ///
    /// Keys that were removed take space for as long as the history reaches, with [`History::Versions`] for ever.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// use esker::{History, Reads};
    /// let prices = db.keyspace("prices")?;
    /// prices.set_history(History::Versions(10))?;
    /// let first = prices.put("apple", "30")?;
    /// prices.put("apple", "35")?;
    /// let last = prices.remove("apple")?;
    /// assert_eq!(prices.get_at("apple", first)?.as_deref(), Some(&b"30"[..]));
    /// assert_eq!(prices.at(first)?.len()?, 1);
    /// let versions: Vec<_> = prices.versions("apple")?.collect::<esker::Result<_>>()?;
    /// assert_eq!((versions[0].seqno, &versions[0].value), (last, &None));
    /// assert_eq!(versions[1].value.as_deref(), Some(&b"35"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove); [`Invalid`](crate::Error::Invalid) for no versions at all.
    pub fn set_history(&self, history: History) -> Result<()> {
        self.core().change_options(&self.state, |options| options.history = history)
    }

    /// What this keyspace keeps of older versions.
    pub fn history(&self) -> History {
        self.core().history_of(&self.state)
    }

    /// This keyspace as it was at a commit. Without a history only the newest can be read. An entry that has expired by now is absent, also at commits
    /// at which it was there.
    ///
    /// # Errors
    /// [`HistoryGone`](crate::Error::HistoryGone) with the oldest commit that can be read, [`Invalid`](crate::Error::Invalid) for a commit that has
    /// not been made, and those of [`get`](Self::get).
    pub fn at(&self, seqno: SeqNo) -> Result<Past> {
        let source = self.core().past(&self.state)?;
        source.check_made(seqno)?;
        if seqno < source.floor {
            return Err(PastSource::gone(&self.state, source.floor));
        }
        Ok(Past::new(self.clone(), source.view, seqno))
    }

    /// The value that a key had at a commit; none if it has expired by now. With [`History::Versions`] this reaches back further than [`at`](Self::at): for each key as far as its own
    /// versions do.
    ///
    /// # Errors
    /// Those of [`at`](Self::at).
    pub fn get_at(&self, key: impl AsRef<[u8]>, seqno: SeqNo) -> Result<Option<Value>> {
        let source = self.core().past(&self.state)?;
        source.check_made(seqno)?;
        check_key(key.as_ref())?;
        let key = KeyBuf::new(self.state.id, key.as_ref());
        if seqno < source.floor {
            let oldest = self.oldest_of(&source, &key, seqno)?;
            if seqno < oldest {
                return Err(PastSource::gone(&self.state, oldest));
            }
        }
        source.view.find::<ValueOf>(&key, seqno, &crate::sync::pin())
    }

    /// From which number on a key can be read, if that is not above `at`, or the keyspace's floor.
    fn oldest_of(&self, source: &PastSource, key: &[u8], at: SeqNo) -> Result<SeqNo> {
        let History::Versions(kept) = source.kept.rule else { return Ok(source.floor) };
        let (newer, last) = source.items_after(key, at, kept)?;
        // If fewer than are kept are newer, what stands below them is there.
        let oldest = if newer < kept { SeqNo::ZERO } else { last };
        Ok(oldest.max(source.kept.since).min(source.floor))
    }

    /// What a key was, newest first: its versions with their numbers, removals among them, as far as they are kept. A version that has expired is
    /// shown as the put that it was; its removal is shown once a [sweep](crate::Db::sweep) has committed that. [`at`](Self::at) and
    /// [`get_at`](Self::get_at) go by the present time instead.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn versions(&self, key: impl AsRef<[u8]>) -> Result<Versions> {
        let source = self.core().past(&self.state)?;
        check_key(key.as_ref())?;
        let (key, next) = (encode_key(self.state.id, key.as_ref()), Some(source.visible));
        // Merges count what is not visible yet, too.
        let (given, _) = source.items_after(&key, source.visible, source.kept.versions())?;
        Ok(Versions { key, source, next, given })
    }

    /// What has changed since a commit, as of now: for dumps that take up from one before. Tables that hold nothing newer are not read.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// use esker::History;
    /// let users = db.keyspace("users")?;
    /// users.set_history(History::Versions(1))?; // enough, since removals count
    /// users.put("ann", "1")?;
    /// let dumped = users.put("bob", "1")?;
    /// users.remove("ann")?;
    /// users.put("cid", "1")?;
    /// let changes = users.since(dumped)?;
    /// let next = changes.seqno(); // the next dump takes up here
    /// assert!(changes.removed_ranges().is_empty());
    /// let changed: Vec<_> = changes.map(|c| c.map(|c| (c.key.to_vec(), c.value.is_some()))).collect::<esker::Result<_>>()?;
    /// assert_eq!(changed, [(b"ann".to_vec(), false), (b"cid".to_vec(), true)]);
    /// # assert!(users.since(next)?.next().is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`at`](Self::at).
    pub fn since(&self, seqno: SeqNo) -> Result<Changes> {
        let source = self.core().past(&self.state)?;
        source.check_made(seqno)?;
        // The newest version of each key is always there, with its number.
        let oldest = match source.kept.rule {
            History::Versions(_) => source.kept.since,
            _ => source.floor,
        };
        if seqno < oldest {
            return Err(PastSource::gone(&self.state, oldest));
        }
        let id = self.state.id;
        let (start, end) = (encode_key(id, &[]), keyspace_end(id));
        let ranges = source.view.ranges_removed(seqno, source.visible, &start, &end);
        let user_key = |key: &[u8]| decode_key(key).map_or_else(Vec::new, |(_, key)| key.to_vec());
        let removed = |(from, to, seqno): (Vec<u8>, Vec<u8>, SeqNo)| RemovedRange {
            start: user_key(&from),
            end: (to < end).then(|| user_key(&to)),
            seqno,
        };
        let cursor = source.view.newer(seqno, source.visible, &encode_bounds(id, &..));
        Ok(Changes {
            removed: ranges.into_iter().map(removed).collect(),
            seqno: source.visible,
            view: source.view,
            cursor,
            state: Walk::New,
        })
    }
}

/// A keyspace as it was at one commit: see [`Keyspace::at`] and [`Reads`](crate::Reads). It keeps the files that it reads until it drops, as iterators do.
/// [`len`](crate::Reads::len) counts by walking.
#[derive(Clone)]
pub struct Past {
    pub(super) keyspace: Keyspace,
    source: ReadSource,
}

impl std::fmt::Debug for Past {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Past({:?} @{})", self.keyspace.name(), self.source.at)
    }
}

impl Past {
    fn new(keyspace: Keyspace, view: Arc<ReadView>, at: SeqNo) -> Self {
        Past {
            keyspace,
            source: ReadSource { view, at, _pin: None, own: None, low_water_key: None, reads: None },
        }
    }

    /// The number of the commit.
    pub fn seqno(&self) -> SeqNo {
        self.source.at
    }
}

impl ReadState for Past {
    fn find<W: PointQuery>(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<W::Out>> {
        self.source.view.check_open()?;
        check_key(key)?;
        let key = KeyBuf::new(keyspace.state.id, key);
        self.source.view.find::<W>(&key, self.source.at, &crate::sync::pin())
    }

    fn source(&self, _keyspace: &Keyspace, _bounds: Option<&Bounds>) -> Result<ReadSource> {
        self.source.view.check_open()?;
        Ok(self.source.clone())
    }

    fn count(&self, keyspace: &Keyspace) -> Result<u64> {
        self.walk(keyspace, ..).keys().try_fold(0, |len, key| key.map(|_| len + 1))
    }
}

/// What a key was from a commit on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The commit. 0: one before the keyspace kept history, or before all of it that is left.
    pub seqno: SeqNo,
    /// The value, also if it has expired since; none: it was removed, by itself, with a range, or by a sweep.
    pub value: Option<Value>,
    /// Whether operands were merged into what was there, and still stand for that: compactions make puts of merges that nothing tells apart any more. The
    /// value is what they made.
    pub is_merge: bool,
}

/// The versions of a key, newest first: see [`Keyspace::versions`].
pub struct Versions {
    source: PastSource,
    key: Vec<u8>,
    /// The next one is not newer than this; none: there is none.
    next: Option<SeqNo>,
    given: u32,
}

impl Versions {
    fn find(&mut self, upto: SeqNo) -> Result<Option<Version>> {
        self.source.view.check_open()?;
        let guard = crate::sync::pin();
        let newest = self.source.view.newest_item(&self.key, upto, &guard)?;
        let Some((seqno, is_merge)) = newest else { return Ok(None) };
        let value = self.source.view.find::<ValueAsMade>(&self.key, seqno, &guard)?;
        let kept = self.source.kept;
        let is_bare = value.is_none() && seqno < self.source.floor && self.given >= kept.versions();
        if is_bare && !canary::is_set(Canary::BareRemovalShown) {
            // The commit may have removed a range and put the key. Or what it put has gone, and left a removal (compaction_judge.6).
            return Ok(None);
        }
        self.given += 1;
        // Of what is older something may be missing.
        let is_last = seqno <= self.source.floor && self.given >= kept.versions() || seqno <= kept.since;
        self.next = seqno.before().filter(|_| !is_last);
        Ok(Some(Version { seqno, value: value.map(Value::unpinned), is_merge }))
    }
}

impl Iterator for Versions {
    type Item = Result<Version>;

    fn next(&mut self) -> Option<Result<Version>> {
        let upto = self.next.take()?;
        self.find(upto).transpose()
    }
}

/// A range of keys that a commit removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedRange {
    /// The first key.
    pub start: Vec<u8>,
    /// The first key behind it; none: it reaches to the end of the keyspace.
    pub end: Option<Vec<u8>>,
    /// The newest commit that removed anything of it.
    pub seqno: SeqNo,
}

/// A key that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The key.
    pub key: Key,
    /// The commit that changed it last.
    pub seqno: SeqNo,
    /// Its value now; none: it was removed.
    pub value: Option<Value>,
}

/// What has changed since a commit: see [`Keyspace::since`]. Apply the removed ranges first, then the keys, which come in order.
pub struct Changes {
    removed: Vec<RemovedRange>,
    seqno: SeqNo,
    view: Arc<ReadView>,
    cursor: NewerCursor,
    state: Walk,
}

enum Walk {
    New,
    Under,
    Ended,
}

impl Changes {
    /// The commit up to which changes are shown.
    pub fn seqno(&self) -> SeqNo {
        self.seqno
    }

    /// The ranges that were removed, in order. A key in them that was put afterwards is shown.
    pub fn removed_ranges(&self) -> &[RemovedRange] {
        &self.removed
    }

    fn advance(&mut self) -> Result<Option<Changed>> {
        self.view.check_open()?;
        let is_there = match self.state {
            Walk::New => self.cursor.first()?,
            Walk::Under => self.cursor.next()?,
            Walk::Ended => false,
        };
        if !is_there {
            return Ok(None);
        }
        let (encoded, seqno, kind) = self.cursor.item();
        let user_key = decode_key(encoded).expect("memtables and tables hold encoded keys").1;
        let value = match kind.ends_search() && !kind.is_live() {
            true => None,
            false => self.view.find::<ValueOf>(encoded, self.seqno, &crate::sync::pin())?,
        };
        Ok(Some(Changed { key: Key::new(user_key), seqno, value }))
    }
}

impl Iterator for Changes {
    type Item = Result<Changed>;

    fn next(&mut self) -> Option<Result<Changed>> {
        let next = self.advance();
        self.state = if matches!(next, Ok(Some(_))) { Walk::Under } else { Walk::Ended };
        next.transpose()
    }
}
