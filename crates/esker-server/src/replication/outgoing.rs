//! Commits of this database with their numbers in the history, for replicas and feeds.
//!
//! ```text
//!   primary:  number = base + commits since the base
//!   replica:  number = the position that the commit itself wrote, if any
//! ```
//!
//! - Commits are sent in order. A gap ends the stream, and nothing is repeated.
//! - A commit that records the role, or something else of this database alone, together with a position is
//!   not part of the history: it says where the database was when it became a replica.

use std::time::Duration;

use esker::replay::encode;
use esker::{Db, Error, Feed, FeedChange, FeedCommit, Result, SeqNo};

use super::bytes::Reader;
use super::frame::{FRAME_BYTES_MAX, Frame};
use super::position::{Epoch, History, Position, Relation};
use super::records::{Base, EPOCH_PREFIX, POSITION_KEY, Role, decode_epoch};
use super::{Replication, State};

/// Size of the pieces in which changes are sent.
const PIECE_BYTES: usize = FRAME_BYTES_MAX / 4;

/// The answer to a replica.
pub enum Answer {
    /// Commits follow from its position on.
    Continue(Box<Outgoing>),
    /// It needs a copy, for this reason: the commits that it asks for are no longer kept.
    Copy(String),
    /// It has another history, for this reason.
    Forked(String),
    /// It cannot be served, for this reason.
    Refused(String),
}

/// Commits that follow a position.
pub struct Outgoing {
    feed: Feed,
    base: Option<Base>,
    repl: u32,
    /// The number of the next commit.
    next: u64,
    epochs: History,
}

impl Replication {
    /// Returns the answer to a replica at this position.
    pub fn answer(&self, at: Position) -> Answer {
        let Some((db, records)) = self.local() else { return Answer::Refused(super::NO_DATABASE.to_owned()) };
        let state = self.state.lock().clone();
        let newest = self.position_in(&state).seq;
        if let Relation::Fork(why) = state.history.relation(newest, at) {
            return Answer::Forked(why);
        }
        let base = match state.role {
            Role::Primary(base) => Some(base),
            _ => None,
        };
        let repl = records.space().id().get();
        let found = find(db, &state, base, repl, at.seq + 1);
        match found {
            Ok(Some(feed)) => Answer::Continue(Box::new(Outgoing {
                feed,
                base,
                repl,
                next: at.seq + 1,
                epochs: state.history,
            })),
            Ok(None) | Err(Error::FeedTruncated { .. }) => Answer::Copy(self.why_copy(at.seq)),
            Err(error) => Answer::Refused(format!("ERR {error}")),
        }
    }
}

impl Replication {
    /// Returns why a replica cannot continue after this commit.
    fn why_copy(&self, seq: u64) -> String {
        let kept =
            self.first_kept().map_or(String::new(), |first| format!(", which begins with commit {first}"));
        format!(
            "commit {} is no longer in the primary's log{kept}. A larger --slot-limit or --backlog there keeps more",
            seq + 1
        )
    }
}

/// Returns the feed from a commit on. `None` if the commit is not there.
fn find(db: &Db, state: &State, base: Option<Base>, repl: u32, seq: u64) -> Result<Option<Feed>> {
    // The first commit that did not come from a primary.
    let edge = base.unwrap_or(Base { local: state.applied_local + 1, seq: state.applied.seq + 1 });
    if seq >= edge.seq {
        return db.feed_after(SeqNo::new(edge.local + (seq - edge.seq)).prev()).map(Some);
    }
    // The feed shows only durable commits.
    db.sync()?;
    // Commits of this database alone may lie in between. So the commit is here, or before.
    let mut back = edge.seq - seq;
    loop {
        let local = edge.local.saturating_sub(back).max(1);
        // If that is no longer kept, the commit may have been skipped: everything that is kept is searched.
        let (mut feed, is_all) = match db.feed_after(SeqNo::new(local).prev()) {
            Err(Error::FeedTruncated { oldest }) => (db.feed_after(oldest.prev())?, true),
            feed => (feed?, local == 1),
        };
        let mut has_smaller = false;
        let found = loop {
            if feed.position().get() >= edge.local {
                break edge.seq;
            }
            let Some(mut commit) = feed.next_within(Duration::from_millis(100))? else { return Ok(None) };
            match number(&mut commit, base, repl)? {
                Some(found) if found == seq => return db.feed_after(commit.seqno().prev()).map(Some),
                Some(found) if found > seq => break found,
                found => has_smaller |= found.is_some(),
            }
        };
        if has_smaller || is_all {
            // It would have to lie in between.
            return Ok(None);
        }
        back += 2 * (found - seq);
    }
}

/// Returns the number of a commit. `None` if it belongs to this database alone.
fn number(commit: &mut FeedCommit, base: Option<Base>, repl: u32) -> Result<Option<u64>> {
    if let Some(seq) = base.and_then(|base| base.seq_of(commit.seqno().get())) {
        return Ok(Some(seq));
    }
    let mut noted = Noted::default();
    while let Some(change) = commit.next_change()? {
        noted.take(&change, repl);
    }
    Ok(noted.seq())
}

/// What a commit writes to this server's own records.
#[derive(Default)]
struct Noted {
    position: Option<u64>,
    /// Something else of this database alone.
    has_own: bool,
}

impl Noted {
    /// Returns whether a change belongs to these records, which are not sent.
    fn take(&mut self, change: &FeedChange<'_>, repl: u32) -> bool {
        let Some((keyspace, key)) = change.key() else { return false };
        if keyspace.get() != repl || key.first() == Some(&EPOCH_PREFIX) {
            return false;
        }
        match change {
            FeedChange::Put { value, .. } if key == POSITION_KEY => {
                let raw = value.bytes().unwrap_or_default();
                self.position = Position::decode(&mut Reader::new(raw)).ok().map(|at| at.seq);
            }
            _ => self.has_own = true,
        }
        true
    }

    /// Returns the number of a commit that came from a primary.
    fn seq(&self) -> Option<u64> {
        self.position.filter(|_| !self.has_own)
    }
}

/// Returns the epoch that a change begins, and the last commit before it, if it begins one.
fn begun_epoch(change: &FeedChange<'_>, repl: u32) -> Option<(Epoch, u64)> {
    match change {
        FeedChange::Put { keyspace, key, value } if keyspace.get() == repl => {
            decode_epoch(key, value.bytes()?).ok()
        }
        _ => None,
    }
}

impl Outgoing {
    /// Takes the next commit of the feed if there is one within this time. Passes its frames to `send` as
    /// they fill up. Returns whether there was a commit.
    ///
    /// # Errors
    /// Fails if the engine fails: a gap.
    pub fn step(
        &mut self,
        patience: Duration,
        out: &mut Vec<u8>,
        mut send: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<bool> {
        let Some(mut commit) = self.feed.next_within(patience)? else { return Ok(false) };
        let own = self.base.and_then(|base| base.seq_of(commit.seqno().get()));
        let mut noted = Noted::default();
        let mut ops = Vec::new();
        let mut has_sent = false;
        while let Some(change) = commit.next_change()? {
            if noted.take(&change, self.repl) {
                continue;
            }
            if let Some(epoch) = begun_epoch(&change, self.repl) {
                self.epochs.push(epoch);
            }
            encode(&change, &mut ops)?;
            if ops.len() >= PIECE_BYTES {
                for piece in ops.chunks(FRAME_BYTES_MAX) {
                    Frame::Ops(piece.to_vec()).encode(out);
                    if !send(out) {
                        return Ok(true);
                    }
                }
                ops.clear();
                has_sent = true;
            }
        }
        match self.arrive(own.or(noted.seq()))? {
            Some(at) => {
                if !ops.is_empty() {
                    Frame::Ops(ops).encode(out);
                }
                Frame::Commit(at).encode(out);
            }
            None if has_sent => Frame::Abandon.encode(out),
            None => {}
        }
        Ok(true)
    }

    /// Returns the position of the commit with this number, which is next. `None` if it is not part of the
    /// history, or was sent before.
    fn arrive(&mut self, seq: Option<u64>) -> Result<Option<Position>> {
        let Some(seq) = seq.filter(|seq| *seq >= self.next) else { return Ok(None) };
        if seq > self.next {
            return Err(Error::Invalid(format!(
                "commit {} of the history is not in this database's feed, which goes on with {seq}",
                self.next
            )));
        }
        self.next += 1;
        Ok(Some(Position { epoch: self.epochs.epoch_of(seq), seq }))
    }

    /// Takes the next commit of the feed if there is one within this time, and shows its changes. Returns its
    /// position if it is part of the history.
    ///
    /// # Errors
    /// Those of [`step`](Self::step), and of `show`.
    pub fn next(
        &mut self,
        patience: Duration,
        show: &mut dyn FnMut(&FeedChange<'_>) -> Result<()>,
    ) -> Result<Option<Option<Position>>> {
        let Some(mut commit) = self.feed.next_within(patience)? else { return Ok(None) };
        let own = self.base.and_then(|base| base.seq_of(commit.seqno().get()));
        let mut noted = Noted::default();
        while let Some(change) = commit.next_change()? {
            if noted.take(&change, self.repl) {
                continue;
            }
            if let Some(epoch) = begun_epoch(&change, self.repl) {
                self.epochs.push(epoch);
            }
            show(&change)?;
        }
        self.arrive(own.or(noted.seq())).map(Some)
    }

    /// Returns the engine's number up to which commits have been taken.
    pub fn taken(&self) -> u64 {
        self.feed.position().get() - 1
    }
}
