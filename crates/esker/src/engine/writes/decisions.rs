//! Decisions of compaction filters, carried out as commits that remove or change entries which a compaction
//! has seen.
//!
//! ```text
//!   compaction --compaction/filter.rs, batches--> decide --newest version of its key?--> commit at once
//!                                                    `--exclusive transaction open--> kept to the end
//! ```
//!
//! - A decision is about one version. compaction/filter.rs has checked that the version was the newest;
//!   the commit checks that the key is still there, and that no version is newer. That is certain only as
//!   long as no later compaction has taken the version in: it may have dropped newer versions, or their
//!   numbers. So a batch is committed, or kept, before its compaction is installed. When another one begins,
//!   what is kept about its keys is forgotten; it shows the filter their newest versions.
//! - A compaction waits neither for the exclusive turn nor for other compactions. A batch that
//!   cannot be committed at once is kept, or forgotten if there are too many. A manual compaction commits
//!   the kept batches after its turn, and starts again if any was forgotten.
//! - A failed decision does not fail the compaction: the next compaction decides again. A manual compaction
//!   returns the error.
//! - No decision is made while a replay makes the commits of another database: a later one of
//!   these may hold an operand for a value that a filter would drop.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::compaction::filter::{Decided, Filter, Filtered, IsBeside, Sieve};
use crate::engine::base::options::{Background, SEALED_MAX};
use crate::engine::upkeep::compact::Filters;
use crate::engine::writes::Writes;
use crate::read::point::CountedPresence;
use crate::sync::pin;
use crate::txn::commit::{CommitRequest, Durability, KeyspaceLife};
use crate::txn::layers::Layers;
use crate::txn::write_set::WriteSet;
use crate::types::interleave;
use crate::types::key::{decode_key, encode_key, keyspace_end};
use crate::types::key_range::KeyRange;
use crate::types::limits::check_value;
use crate::types::op::Kind;
use crate::types::{Error, Result, SeqNo};

/// Maximum number of batches kept until the end of a compaction.
const KEPT_MAX: usize = 64;
/// Attempts to commit a batch that conflicts with newer writes. After that it is left to the next compaction.
const TRIES: usize = 8;

/// Decisions of filters, and their outcome.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    state: Mutex<State>,
    /// Held while a batch is taken from those that are kept, and committed.
    committing: Mutex<()>,
}

impl Decisions {
    /// Forgets the kept decisions about keys that a compaction takes in as it begins.
    pub(super) fn forget(&self, takes_in: impl Fn(&[u8]) -> bool) {
        let _committing = self.committing.lock();
        let kept = &mut self.state.lock().kept;
        kept.iter_mut().for_each(|batch| batch.retain(|decided| !takes_in(&decided.key)));
        kept.retain(|batch| !batch.is_empty());
    }

    /// Waits for the commit of a batch in progress.
    pub(super) fn wait_for_commit(&self) {
        drop(self.committing.lock());
    }
}

#[derive(Debug, Default)]
struct State {
    /// Batches that are kept.
    kept: VecDeque<Vec<Decided>>,
    /// Whether a batch was forgotten.
    has_forgotten: bool,
    /// Whether a batch was committed.
    has_committed: bool,
    /// The first failure.
    failed: Option<Error>,
}

/// Outcome of a pass of the filters over all entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Passed {
    /// Entries were changed: another compaction frees their space.
    pub(in crate::engine) has_changed: bool,
    /// Some decisions are left to be made.
    pub(in crate::engine) is_partial: bool,
}

impl Filters for Writes {
    /// Shows the filters what a compaction keeps at this visible commit.
    fn sieve(&self, visible: SeqNo, is_beside: IsBeside) -> Option<Sieve<'_>> {
        if self.options.filters().is_empty() || self.is_held() {
            return None;
        }
        let blobs = self.version().blobs().clone();
        let newest = self.published.newest_snapshot();
        Sieve::new(self.filtered(), newest, visible, is_beside, blobs, |batch| self.decide(batch))
    }

    fn forget(&self, takes_in: &dyn Fn(&[u8]) -> bool) {
        self.decisions.forget(takes_in);
    }
}

impl Writes {
    /// The keyspaces with a filter.
    fn filtered(&self) -> Vec<Filtered> {
        let filters = self.options.filters();
        let of = |(name, filter): (&String, &Filter)| {
            let id = self.catalog.get(name)?.id;
            Some(Filtered { keys: encode_key(id, &[])..keyspace_end(id), filter: filter.clone() })
        };
        filters.iter().filter_map(of).collect()
    }

    /// Returns a function that tells whether a filter has to see the entries of a range.
    pub(in crate::engine) fn is_filtered(&self) -> impl Fn(&KeyRange) -> bool + use<> {
        let filtered = self.filtered();
        move |range: &KeyRange| {
            let meets = |of: &Filtered| {
                of.keys.end.as_slice() > range.start.as_slice() && range.end.admits(&of.keys.start)
            };
            filtered.iter().any(meets)
        }
    }

    /// Takes a batch of decisions, and commits it if that is possible now.
    fn decide(&self, batch: Result<Vec<Decided>>) {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                self.counters.note_error(&error);
                return self.note_decided(Err(error));
            }
        };
        {
            let mut state = self.decisions.state.lock();
            match state.kept.len() < KEPT_MAX {
                true => state.kept.push_back(batch),
                false => state.has_forgotten = true,
            }
        }
        let Some(_passage) = self.exclusive_turn.pass_if_free() else { return };
        self.commit_kept(|| self.make_room_beside_merge());
    }

    /// Commits the batches that are kept, each after `admit`.
    fn commit_kept<T>(&self, admit: impl Fn() -> Result<T>) {
        while !self.decisions.state.lock().kept.is_empty() {
            let admitted = admit();
            let _committing = self.decisions.committing.lock();
            let Some(batch) = self.decisions.state.lock().kept.pop_front() else { return };
            self.note_decided(admitted.and_then(|_admitted| self.carry_out(batch)));
        }
    }

    fn note_decided(&self, done: Result<bool>) {
        let mut state = self.decisions.state.lock();
        match done {
            Ok(has_changed) => state.has_committed |= has_changed,
            Err(error) => drop(state.failed.get_or_insert(error)),
        }
    }

    /// Starts a pass over all entries.
    pub(in crate::engine) fn begin_pass(&self) {
        *self.decisions.state.lock() = State::default();
    }

    /// Ends a pass over all entries and commits the kept batches. The caller holds no turn.
    pub(in crate::engine) fn end_pass(&self) -> Result<Passed> {
        self.commit_kept(|| self.wait_for_exclusive());
        let state = std::mem::take(&mut *self.decisions.state.lock());
        match state.failed {
            Some(error) => Err(error),
            None => Ok(Passed { has_changed: state.has_committed, is_partial: state.has_forgotten }),
        }
    }

    /// Waits or flushes until memtables have space. Does not wait for a compaction.
    fn make_room_beside_merge(&self) -> Result<()> {
        match self.options.background() {
            Background::Threads => {
                self.signal.wake_flush();
                self.signal.wait_until(|| self.pipeline.sealed_len() <= SEALED_MAX)
            }
            Background::Writers | Background::Steps => {
                while self.pipeline.sealed_len() > SEALED_MAX && self.flush_step()? {}
                Ok(())
            }
        }
    }

    /// Commits the decisions that still hold. Returns whether there were any. The caller has
    /// been admitted and holds the lock for commits.
    fn carry_out(&self, batch: Vec<Decided>) -> Result<bool> {
        if self.is_held() {
            return Ok(false);
        }
        for _ in 0..TRIES {
            let Some(mut request) = self.request_of(&batch)? else { return Ok(false) };
            self.divert(&mut request)?;
            match interleave::without_points(|| self.pipeline.commit(request)) {
                Ok(_) => return Ok(true),
                Err(Error::Conflict { .. }) => {}
                // The keyspace has been dropped.
                Err(Error::KeyspaceNotFound(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Builds the commit of the decisions that still hold. It conflicts with later writes to their keys.
    fn request_of(&self, batch: &[Decided]) -> Result<Option<CommitRequest>> {
        let since = self.snapshot();
        let view = self.view.get();
        let mut set = WriteSet::new();
        let mut keyspaces: Vec<KeyspaceLife> = Vec::new();
        let all = self.catalog.all();
        for Decided { key, seq, value, expiry } in batch {
            let id = decode_key(key).expect("tables hold encoded keys").0;
            let is_there = view.find::<CountedPresence>(key, since.seq(), &pin())?.is_some();
            if !is_there || view.newest_version(key, *seq)?.is_some() {
                continue;
            }
            let is_known = keyspaces.iter().any(|life| life.id == id);
            if !is_known {
                let Some((_, state)) = all.iter().find(|(_, state)| state.id == id) else { continue };
                keyspaces.push(state.life());
            }
            match value {
                None => set.remove(key),
                Some(value) if check_value(value).is_ok() => set.put_until(Kind::PUT, key, *expiry, value),
                Some(_) => {}
            }
        }
        if set.is_empty() {
            return Ok(None);
        }
        set.sort();
        let plain = CommitRequest::of(Arc::new(set), Layers::default(), Durability::None);
        Ok(Some(CommitRequest {
            since: Some(since),
            keyspaces: Arc::new(keyspaces),
            may_pass: true,
            ..plain
        }))
    }
}
