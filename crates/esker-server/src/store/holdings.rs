//! What connections hold over many requests: a transaction, named locks, and what they listen to.
//!
//! ```text
//!   ES, OB commands --write--> a transaction --at ES.COMMIT, OB.COMMIT--> the sequencer's transaction, and what it says
//!                   --lock---> named_locks   --wait--> sequencer
//!                   --listen-> topics, changes --> client
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `held_transaction`, `levels`, `overlay`, `view` | what a transaction has done, and what it sees |
//! | `read_set`, `compare` | what its commit depends on |
//! | `named_locks`, `topics` | what transactions wait for and say |
//! | `place` | where keys lie |

pub mod compare;
pub mod held_transaction;
pub mod levels;
pub mod named_locks;
pub mod overlay;
pub mod place;
pub mod read_set;
pub mod topics;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use self::held_transaction::{Held, Isolation};
use self::named_locks::Locks;
use self::topics::{Inbox, Interest, Saying, Topics};
use crate::run::queue::Sequencer;

/// Interests, each in a place of this name.
pub type Interests = BTreeSet<(String, Interest)>;

/// What a connection holds.
#[derive(Default)]
pub struct Own {
    /// Its transaction.
    pub transaction: Option<Arc<Held>>,
    /// Topics that it fetches.
    pub fetched: Interests,
    /// What was said of them.
    pub inbox: Arc<Inbox>,
    /// Topics that it is sent.
    pub sent: Interests,
    /// Keys whose changes it is sent.
    pub watched: Interests,
}

impl Own {
    /// How much it is sent that answers no request.
    pub fn subscriptions(&self) -> usize {
        self.sent.len() + self.watched.len()
    }
}

/// What all connections hold.
#[derive(Default)]
pub struct Holdings {
    /// Named locks.
    pub locks: Locks,
    /// Who listens to topics, and fetches them.
    pub fetched: Topics,
    /// Who listens to topics, and is sent them.
    pub sent: Topics,
    /// Who watches keys.
    pub changes: Topics,
    transactions: Mutex<BTreeMap<u64, Arc<Held>>>,
    /// Relaxed: numbers are to be different, no more.
    last: AtomicU64,
}

impl Holdings {
    /// A new transaction, in the list.
    pub fn begin(&self, client: u64, began_in: String, isolation: Isolation, now: u64) -> Arc<Held> {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let held = Arc::new(Held::new(id, client, began_in, isolation, now));
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

    /// A transaction has ended: its locks are given back. Those that wait for them are served after what runs now has committed.
    pub fn end(&self, held: &Held, sequencer: &Sequencer) {
        self.transactions.lock().remove(&held.id);
        drop(held.take());
        wake(self.locks.end_transaction(held.client), sequencer);
    }

    /// A connection does not wait for a lock any more.
    pub fn stop_waiting(&self, client: u64, sequencer: &Sequencer) {
        wake(self.locks.stop_waiting(client), sequencer);
    }

    /// Whether no connection listens to topics.
    pub fn has_no_listeners(&self) -> bool {
        self.fetched.is_empty() && self.sent.is_empty()
    }

    /// Says something.
    pub fn say(&self, said: &Saying, sequencer: &Sequencer) {
        wake(self.fetched.say(said), sequencer);
        self.sent.say(said);
    }

    /// Rolls back transactions for which nothing has come for so long. One that waits for a lock is not idle.
    pub fn expire(&self, now: u64, idle_ms: u64, sequencer: &Sequencer) {
        for held in self.transactions() {
            if !self.locks.is_waiting(held.client) && held.expire(now, idle_ms) {
                self.end(&held, sequencer);
            }
        }
    }

    /// A connection has ended: nothing of it is left behind.
    pub fn leave(&self, own: &mut Own, client: u64, sequencer: &Sequencer) {
        let own = std::mem::take(own);
        let all = [(&self.fetched, own.fetched), (&self.sent, own.sent), (&self.changes, own.watched)];
        for (topics, interests) in all {
            interests.iter().for_each(|(place, interest)| topics.unlisten(place, interest, client));
        }
        if let Some(held) = own.transaction {
            self.end(&held, sequencer);
        }
        wake(self.locks.leave(client), sequencer);
    }
}

/// Has connections try again that waited for what is there now.
pub fn wake(clients: Vec<u64>, sequencer: &Sequencer) {
    clients.into_iter().for_each(|client| sequencer.retry(client));
}
