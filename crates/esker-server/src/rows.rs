//! Tables of keys with columns: obigstore's model.
//!
//! ```text
//!   keyspace ob.<name>:  table, key, column --> timestamp, data
//!
//!   OB commands --reads--> Source: a state, walked with skips
//!               --writes-> Writes --at once, or at OB.COMMIT--> the sequencer's transaction
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `codec` | stored keys and values: docs/formats/obigstore.md |
//! | `spans`, `condition`, `walk`, `slice` | reads |
//! | `overlay`, `held_transaction` | transactions |
//! | `named_locks`, `topics` | what transactions wait for and say |

pub mod codec;
pub mod condition;
pub mod held_transaction;
pub mod named_locks;
pub mod overlay;
pub mod slice;
pub mod spans;
pub mod topics;
pub mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use self::held_transaction::Held;
use self::named_locks::Locks;
use self::topics::{Inbox, Interest, Topics};
use crate::sequencer::Sequencer;
use crate::store::Space;

/// What a connection is to `OB` commands.
#[derive(Default)]
pub struct RowsSession {
    /// The keyspace it works in, and its space; none: the one called `default`.
    pub place: Option<(String, Space)>,
    /// The transaction it holds.
    pub held: Option<Arc<Held>>,
    /// What it listens to, each in a keyspace.
    pub interests: BTreeSet<(String, Interest)>,
    /// What was said to it.
    pub inbox: Arc<Inbox>,
}

/// What all connections share.
#[derive(Default)]
pub struct Rows {
    /// Named locks.
    pub locks: Locks,
    /// Listeners.
    pub topics: Topics,
    transactions: Mutex<BTreeMap<u64, Arc<Held>>>,
    /// Relaxed: numbers are to be different, no more.
    last: AtomicU64,
}

impl Rows {
    /// A new transaction, in the list.
    pub fn begin(&self, client: u64, keyspace: &str, space: Space, now: u64) -> Arc<Held> {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let held = Arc::new(Held::new(id, client, keyspace, space, now));
        self.transactions.lock().insert(id, held.clone());
        held
    }

    /// The transactions that are open, oldest first.
    pub fn transactions(&self) -> Vec<Arc<Held>> {
        self.transactions.lock().values().cloned().collect()
    }

    /// One of them.
    pub fn transaction(&self, id: u64) -> Option<Arc<Held>> {
        self.transactions.lock().get(&id).cloned()
    }

    /// Has those try again that waited for what is free now.
    fn wake(&self, owners: Vec<u64>, sequencer: &Sequencer) {
        for owner in owners {
            if let Some(held) = self.transaction(owner) {
                sequencer.retry(held.client);
            }
        }
    }

    /// A transaction has ended: its locks are given back. Those that wait for them are served after what runs now has committed.
    pub fn end(&self, held: &Held, sequencer: &Sequencer) {
        self.transactions.lock().remove(&held.id);
        drop(held.take());
        self.wake(self.locks.release(held.id), sequencer);
    }

    /// A connection does not wait for a lock any more.
    pub fn stop_waiting(&self, session: &RowsSession, sequencer: &Sequencer) {
        if let Some(held) = &session.held {
            self.wake(self.locks.stop_waiting(held.id), sequencer);
        }
    }

    /// Says topics of a keyspace.
    pub fn say(&self, keyspace: &str, topics: &[Vec<u8>], sequencer: &Sequencer) {
        let heard = topics.iter().flat_map(|topic| self.topics.say(keyspace, topic));
        heard.for_each(|client| sequencer.retry(client));
    }

    /// Rolls back transactions for which nothing has come for so long. One that waits for a lock is not idle.
    pub fn expire(&self, now: u64, idle_ms: u64, sequencer: &Sequencer) {
        for held in self.transactions() {
            if !self.locks.is_waiting(held.id) && held.expire(now, idle_ms) {
                self.end(&held, sequencer);
            }
        }
    }

    /// A connection has ended: nothing of it is left behind.
    pub fn leave(&self, session: &mut RowsSession, client: u64, sequencer: &Sequencer) {
        for (keyspace, interest) in std::mem::take(&mut session.interests) {
            self.topics.unlisten(&keyspace, &interest, client);
        }
        if let Some(held) = session.held.take() {
            self.end(&held, sequencer);
        }
        *session = RowsSession::default();
    }
}
