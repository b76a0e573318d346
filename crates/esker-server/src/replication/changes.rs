//! The change feed for clients: what each commit of the history has changed in one keyspace.
//!
//! ```text
//!   ES.FEED epoch number --answer--> outgoing --changes of the keyspace--> Batch: commits, next position
//! ```
//!
//! Commits come in order, once, entire, and once they are durable. A client that continues from the end of a
//! batch misses none, even at another server of the same history.

use std::time::Duration;

use esker::{FeedChange, KeyspaceId, Result};

use super::Replication;
use super::outgoing::{Answer, Outgoing};
use super::position::Position;
use crate::holdings::namespace::Namespace;
use crate::resp::fail::{Done, Fail};
use crate::store::record::{Kind, Main};

/// A batch ends with the commit that exceeds this size.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Maximum number of commits read for a batch.
const LOOKED_AT_MAX: usize = 100_000;
/// A commit with larger changes is an error.
const COMMIT_BYTES_MAX: usize = 256 << 20;

/// A change of a keyspace, as the reply of `ES.FEED` has it.
#[derive(Debug)]
pub struct KeyChange {
    /// What was done: `set`, `merge`, `del`, `delrange`, or `all`: the namespace has another keyspace.
    pub name: &'static str,
    /// The key, or the first key of a range. Empty for `all`.
    pub key: Vec<u8>,
    /// The value, or null if it is not a string; the operands; or the end of the range, empty for the end of
    /// the keyspace.
    pub words: Vec<Option<Vec<u8>>>,
}

/// Commits, and the position after which to continue.
#[derive(Debug)]
pub struct Batch {
    /// Commits with their positions. Commits that do not change the keyspace are left out.
    pub commits: Vec<(Position, Vec<KeyChange>)>,
    /// Position up to which all commits were examined.
    pub at: Position,
}

/// Commits after a position.
pub struct ChangeFeed {
    outgoing: Box<Outgoing>,
    at: Position,
    followed: Followed,
}

/// The keyspace that a feed shows.
struct Followed {
    keyspace: KeyspaceId,
    name: String,
    is_database: bool,
}

impl Replication {
    /// Returns the feed of changes of a namespace after a position.
    ///
    /// # Errors
    /// Fails if the commits are not kept any longer (`TRUNCATED`), if the position belongs to another history
    /// (`FORKED`), or if there is no feed.
    pub fn changes(&self, namespace: &Namespace, at: Position) -> Done<ChangeFeed> {
        let (db, _) = self.local().ok_or("ERR this store has no feed of its commits")?;
        let name = namespace.name();
        let keyspace = db.open_keyspace(&name)?.id();
        let followed = Followed { keyspace, name, is_database: namespace.database.is_some() };
        let outgoing = match self.answer(at) {
            Answer::Continue(outgoing) => outgoing,
            Answer::Copy(_) => {
                return Err(Fail::text(format!(
                    "TRUNCATED commits behind {at} are not kept any more: ask ES.POSITION, read all data, and go on from there; \
                     --backlog says how much is kept"
                )));
            }
            Answer::Forked(why) => return Err(Fail::text(format!("FORKED {why}"))),
            Answer::Refused(why) => {
                return Err(Fail::text(format!("{why}; `esker serve` keeps commits by --backlog")));
            }
        };
        Ok(ChangeFeed { outgoing, at, followed })
    }
}

impl ChangeFeed {
    /// Returns the next commits, at most `commits_max`. The batch is empty if there are none yet.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn read(&mut self, replication: &Replication, commits_max: usize) -> Done<Batch> {
        let (mut commits, mut bytes) = (Vec::new(), 0);
        for _ in 0..LOOKED_AT_MAX {
            let mut changes = Vec::new();
            let mut size = 0;
            let mut take = |change: &FeedChange<'_>| -> Result<()> {
                let taken = self.followed.key_change(change)?;
                size += taken.as_ref().map_or(0, bytes_of);
                changes.extend(taken.filter(|_| size <= COMMIT_BYTES_MAX));
                Ok(())
            };
            match self.outgoing.next(Duration::ZERO, &mut take)? {
                Some(Some(at)) => {
                    if size > COMMIT_BYTES_MAX && commits.is_empty() {
                        return Err(Fail::text(format!(
                            "TOOLARGE commit {at} changes more than can be sent: read all data, and go on from it"
                        )));
                    }
                    if size > COMMIT_BYTES_MAX {
                        break;
                    }
                    self.at = at;
                    bytes += size;
                    if !changes.is_empty() {
                        commits.push((at, changes));
                    }
                }
                Some(None) => {}
                // Only durable commits are shown.
                None if commits.is_empty() && replication.has_more_than(self.outgoing.taken()) => {
                    replication.sync()?;
                }
                None => break,
            }
            if commits.len() >= commits_max || bytes >= BATCH_BYTES_MAX {
                break;
            }
        }
        Ok(Batch { commits, at: self.at })
    }

    /// Returns the position up to which all commits were examined.
    pub fn at(&self) -> Position {
        self.at
    }
}

impl Followed {
    /// Converts a change. `None` if it is of another keyspace.
    ///
    /// `SWAPDB` and renames give the name to another keyspace, whose content the reader does not know.
    fn key_change(&mut self, change: &FeedChange<'_>) -> Result<Option<KeyChange>> {
        if let FeedChange::Named { keyspace, name } = change
            && *name == self.name
        {
            self.keyspace = *keyspace;
            return Ok(Some(KeyChange { name: "all", key: Vec::new(), words: Vec::new() }));
        }
        let Some((_, key)) = change.key().filter(|(id, _)| *id == self.keyspace) else { return Ok(None) };
        let (name, words) = match change {
            FeedChange::Put { value, .. } => {
                let stored = value.read()?;
                let shown = if self.is_database {
                    let main =
                        Main::decode(stored).map_err(|error| esker::Error::Invalid(error.to_string()))?;
                    (main.kind == Kind::String).then(|| main.text().to_vec())
                } else {
                    Some(stored.to_vec())
                };
                ("set", vec![shown])
            }
            FeedChange::Merge { operands, .. } => {
                ("merge", operands.iter().map(|operand| Some(operand.bytes().to_vec())).collect())
            }
            FeedChange::DeleteRange { end, .. } => ("delrange", vec![Some(end.unwrap_or_default().to_vec())]),
            _ => ("del", Vec::new()),
        };
        Ok(Some(KeyChange { name, key: key.to_vec(), words }))
    }
}

fn bytes_of(change: &KeyChange) -> usize {
    32 + change.key.len() + change.words.iter().flatten().map(Vec::len).sum::<usize>()
}
