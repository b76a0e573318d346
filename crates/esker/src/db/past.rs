//! Reads of the past, for keyspaces that keep history.
//!
//! ```text
//!   at(n) --> Past: the same reads, as of commit n          get_at(key, n)
//!   versions(key) --> the versions of the key, newest first
//!   since(n) --> Changes: changes after commit n
//! ```

use std::sync::Arc;

use super::bounds::encode_bounds;
use super::handles::ReadState;
use super::key_handle::Key;
use super::keyspace::Keyspace;
use super::watch::Change;
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
    /// Sets which older versions this keyspace keeps from now on. They serve reads of the past
    /// ([`at`](Self::at), [`get_at`](Self::get_at), [`versions`](Self::versions)) and incremental dumps
    /// ([`since`](Self::since)). Default [`History::None`]. The option is stored in the database by a
    /// [`Sync`](crate::Durability::Sync) commit.
    ///
    /// History begins with this call: versions replaced before it are not available. If the new history is
    /// shorter, compactions drop the versions beyond it. A duration is measured by the wall clock and applied
    /// at flushes. The keyspace can be read at every state within the duration, and at older ones until the
    /// next flush and compaction. The age limit is exact to a tenth of the age.
    ///
    /// Merges are versions, too. With [`History::Versions`] a merge counts like a put of its result. The
    /// versions that it builds on are kept with it.
    ///
    /// Removed keys take space as long as the history reaches, with [`History::Versions`] for ever.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// use esker::{History, Reads};
    /// let prices = db.keyspace("prices")?;
    /// prices.set_history(History::Versions(10))?;
    /// let first = prices.put("apple", "30")?;
    /// prices.put("apple", "35")?;
    /// let last = prices.delete("apple")?;
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
    /// Those of [`delete`](Self::delete); [`Invalid`](crate::Error::Invalid) for a history of zero versions.
    pub fn set_history(&self, history: History) -> Result<()> {
        self.core().change_options(&self.state, |options| options.history = history)
    }

    /// Returns which older versions this keyspace keeps.
    pub fn history(&self) -> History {
        self.core().history_of(&self.state)
    }

    /// Returns this keyspace as it was at a commit. Without history only the newest state can be read. An
    /// entry that has expired by now is absent, even at commits at which it existed.
    ///
    /// # Errors
    /// [`HistoryGone`](crate::Error::HistoryGone) with the oldest readable commit;
    /// [`Invalid`](crate::Error::Invalid) for a commit number that does not exist yet; those of
    /// [`get`](Self::get).
    pub fn at(&self, seqno: SeqNo) -> Result<Past> {
        let source = self.core().past(&self.state)?;
        source.check_made(seqno)?;
        if seqno < source.floor {
            return Err(PastSource::below_floor(&self.state, source.floor));
        }
        Ok(Past::new(self.clone(), source.view, seqno))
    }

    /// Returns the value of a key at a commit, or `None` if the value has expired by now. With
    /// [`History::Versions`] this reaches further back than [`at`](Self::at): for each key as far as its own
    /// kept versions.
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
                return Err(PastSource::below_floor(&self.state, oldest));
            }
        }
        source.view.find::<ValueOf>(&key, seqno, &crate::sync::pin())
    }

    /// Returns the number from which on a key can be read, if that is at most `at`. Otherwise returns the
    /// keyspace's floor.
    fn oldest_of(&self, source: &PastSource, key: &[u8], at: SeqNo) -> Result<SeqNo> {
        let History::Versions(kept) = source.kept.rule else { return Ok(source.floor) };
        let (newer, last) = source.items_after(key, at, kept)?;
        // If fewer versions than the rule keeps are newer, all older ones still exist.
        let oldest = if newer < kept { SeqNo::ZERO } else { last };
        Ok(oldest.max(source.kept.since).min(source.floor))
    }

    /// Returns the kept versions of a key, newest first, including removals. A version that has expired is
    /// returned as the put that it was. Its removal is returned once a [sweep](crate::Db::sweep) has
    /// committed it. In contrast, [`at`](Self::at) and [`get_at`](Self::get_at) apply the present time.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn versions(&self, key: impl AsRef<[u8]>) -> Result<Versions> {
        let source = self.core().past(&self.state)?;
        check_key(key.as_ref())?;
        let (key, next) = (encode_key(self.state.id, key.as_ref()), Some(source.visible));
        // Merges also count versions that are not visible yet.
        let (given, _) = source.items_after(&key, source.visible, source.kept.versions())?;
        Ok(Versions { key, source, next, given })
    }

    /// Returns the changes after a commit, up to now, for incremental dumps. Applied in order, they turn the
    /// state at that commit into the state at [`Changes::seqno`]: first come the removed ranges, then for
    /// each changed key its newest put or removal, in the order of the keys. Tables without newer entries are
    /// not read.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// use esker::{Change, History};
    /// let users = db.keyspace("users")?;
    /// users.set_history(History::Versions(1))?; // enough, because removals are kept
    /// users.put("ann", "1")?;
    /// let dumped = users.put("bob", "1")?;
    /// users.delete("ann")?;
    /// users.put("cid", "1")?;
    /// let changes = users.since(dumped)?;
    /// let next = changes.seqno(); // the next dump starts here
    /// for change in changes {
    ///     match change? {
    ///         (commit, Change::Put { key, value, .. }) => println!("{commit}: {key:?} = {value:?}"),
    ///         (commit, Change::Delete { key, .. }) => println!("{commit}: {key:?} is deleted"),
    ///         (commit, other) => println!("{commit}: {other:?}"),
    ///     }
    /// }
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
        // The newest version of each key always exists, with its number.
        let oldest = match source.kept.rule {
            History::Versions(_) => source.kept.since,
            _ => source.floor,
        };
        if seqno < oldest {
            return Err(PastSource::below_floor(&self.state, oldest));
        }
        let id = self.state.id;
        let (start, end) = (encode_key(id, &[]), keyspace_end(id));
        let ranges = source.view.ranges_removed(seqno, source.visible, &start, &end);
        let user_key = |key: &[u8]| Key::new(decode_key(key).map_or(&[][..], |(_, key)| key));
        let removed = |(from, to, seqno): (Vec<u8>, Vec<u8>, SeqNo)| {
            let end = (to < end).then(|| user_key(&to));
            (seqno, Change::DeleteRange { start: user_key(&from), end })
        };
        let cursor = source.view.newer(seqno, source.visible, &encode_bounds(id, &..));
        Ok(Changes {
            removed: ranges.into_iter().map(removed).collect::<Vec<_>>().into_iter(),
            seqno: source.visible,
            view: source.view,
            cursor,
            state: Walk::New,
        })
    }
}

/// A keyspace as it was at one commit: see [`Keyspace::at`] and [`Reads`](crate::Reads). It keeps the files
/// that it reads until it drops, as iterators do. [`len`](crate::Reads::len) walks over all keys.
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

/// A version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version<V = Value> {
    /// The commit that wrote it. 0: a commit before the keyspace kept history, or before the kept history.
    pub seqno: SeqNo,
    /// The value, even if it has expired since. `None`: the key was removed by itself, with a range, or by a
    /// sweep.
    pub value: Option<V>,
    /// Whether the version merged operands into an older value and is still stored that way. Compactions
    /// replace merges by puts. `value` is the result of the merge.
    pub is_merge: bool,
}

/// The versions of a key, newest first: see [`Keyspace::versions`].
pub struct Versions {
    source: PastSource,
    key: Vec<u8>,
    /// Upper limit of the next version's number. `None`: there are no more versions.
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
            // The commit may have removed a range and put the key. Or the value that it put was dropped,
            // which left a removal (compaction_judge.6).
            return Ok(None);
        }
        self.given += 1;
        // Older versions may be incomplete.
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

/// The changes after a commit, with the commits that made them: see [`Keyspace::since`].
pub struct Changes {
    removed: std::vec::IntoIter<(SeqNo, Change)>,
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
    /// The newest commit whose changes are included.
    pub fn seqno(&self) -> SeqNo {
        self.seqno
    }

    fn advance(&mut self) -> Result<Option<(SeqNo, Change)>> {
        self.view.check_open()?;
        if let Some(range) = self.removed.next() {
            return Ok(Some(range));
        }
        let is_there = match self.state {
            Walk::New => self.cursor.first()?,
            Walk::Under => self.cursor.next()?,
            Walk::Ended => false,
        };
        if !is_there {
            return Ok(None);
        }
        self.state = Walk::Under;
        let (encoded, seqno, kind) = self.cursor.item();
        let user_key = decode_key(encoded).expect("memtables and tables hold encoded keys").1;
        let value = match kind.ends_search() && !kind.is_live() {
            true => None,
            false => self.view.find::<ValueOf>(encoded, self.seqno, &crate::sync::pin())?,
        };
        let key = Key::new(user_key);
        let change = match value {
            None => Change::Delete { key },
            value => Change::Put { key, value },
        };
        Ok(Some((seqno, change)))
    }
}

impl Iterator for Changes {
    type Item = Result<(SeqNo, Change)>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if !matches!(next, Ok(Some(_))) {
            self.removed = Vec::new().into_iter();
            self.state = Walk::Ended;
        }
        next.transpose()
    }
}
