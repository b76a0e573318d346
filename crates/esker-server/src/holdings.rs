//! What connections hold between requests: a transaction, named locks and subscriptions to topics.
//!
//! ```text
//!   ES, OB commands --write--> held transaction --ES.COMMIT, OB.COMMIT--> transaction of the sequencer
//!                   --lock---> named_locks      --a lock becomes free---> sequencer
//!                   --listen-> topics, changes  -----------------------> client
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `held_transaction` | a transaction's writes, savepoints and watched keys |
//! | `named_locks` | the locks of each connection |
//! | `topics` | the listeners of each topic, and the messages for them |
//! | `namespace` | a database or an ordered map, where keys are stored |

pub mod held_transaction;
pub mod named_locks;
pub mod namespace;
pub mod topics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use self::held_transaction::Held;
use self::named_locks::Locks;
use self::topics::{Inbox, Interest, Saying, Topics};
use crate::store::{Isolation, Store};

/// Interests, each with the name of its namespace.
pub type Interests = BTreeSet<(String, Interest)>;

/// What a connection holds.
#[derive(Default)]
pub struct Own {
    /// The open transaction.
    pub transaction: Option<Arc<Held>>,
    /// Topics whose messages the connection fetches.
    pub fetched: Interests,
    /// Messages to fetch.
    pub inbox: Arc<Inbox>,
    /// Topics whose messages the server sends to the connection.
    pub sent: Interests,
    /// Keys whose changes the server sends to the connection.
    pub watched: Interests,
}

impl Own {
    /// Returns whether the open transaction has written.
    pub fn has_written(&self) -> bool {
        self.transaction.as_ref().is_some_and(|held| held.writes() > 0)
    }

    /// Returns the number of topics and keys about which the server sends messages without a request.
    pub fn subscriptions(&self) -> usize {
        self.sent.len() + self.watched.len()
    }
}

/// What all connections hold between requests.
#[derive(Default)]
pub struct Holdings {
    /// Named locks.
    pub locks: Locks,
    /// Connections that fetch messages, by topic.
    pub fetched: Topics,
    /// Connections to which messages are sent, by topic.
    pub sent: Topics,
    /// Connections that watch keys.
    pub changes: Topics,
    transactions: Mutex<BTreeMap<u64, Arc<Held>>>,
    /// The last transaction number. Relaxed: numbers only need to differ.
    last: AtomicU64,
}

impl Holdings {
    /// Begins a transaction and adds it to the list.
    pub fn begin(
        &self,
        store: &dyn Store,
        client: u64,
        began_in: String,
        isolation: Isolation,
        now: u64,
    ) -> Arc<Held> {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let held = Arc::new(Held::new(id, client, began_in, (isolation, store.begin_part(isolation)), now));
        self.transactions.lock().insert(id, held.clone());
        held
    }

    /// Returns the open transactions, oldest first.
    pub fn transactions(&self) -> Vec<Arc<Held>> {
        self.transactions.lock().values().cloned().collect()
    }

    /// Returns an open transaction by its number.
    pub fn transaction(&self, id: u64) -> Option<Arc<Held>> {
        self.transactions.lock().get(&id).cloned()
    }

    /// Ends a transaction and releases its locks. Connections that wait for them run again after the current
    /// commit.
    pub fn end(&self, held: &Held) {
        self.transactions.lock().remove(&held.id);
        drop(held.take());
        self.locks.end_transaction(held.client);
    }

    /// Returns whether no connection listens to topics.
    pub fn has_no_listeners(&self) -> bool {
        self.fetched.is_empty() && self.sent.is_empty()
    }

    /// Delivers a message. Returns the connections whose waiting fetch can run again.
    pub fn say(&self, said: &Saying) -> Vec<u64> {
        self.sent.say(said);
        self.fetched.say(said)
    }

    /// Rolls back transactions that have been idle for `idle_ms` milliseconds. A transaction that waits for a
    /// lock is not idle.
    pub fn expire(&self, now: u64, idle_ms: u64) {
        for held in self.transactions() {
            if !self.locks.is_waiting(held.client) && held.expire(now, idle_ms) {
                self.end(&held);
            }
        }
    }

    /// Drops everything that a closed connection held.
    pub fn leave(&self, own: &mut Own, client: u64) {
        let own = std::mem::take(own);
        let all = [(&self.fetched, own.fetched), (&self.sent, own.sent), (&self.changes, own.watched)];
        for (topics, interests) in all {
            interests.iter().for_each(|(place, interest)| topics.unlisten(place, interest, client));
        }
        if let Some(held) = own.transaction {
            self.end(&held);
        }
        self.locks.leave(client);
    }
}
