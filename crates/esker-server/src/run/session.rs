//! The state of a connection that its commands use. It travels with them to where they run, and back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::acl::User;
use crate::clients::Client;
use crate::clients::pubsub::Hearing;
use crate::holdings::Own;
use crate::holdings::namespace::Namespace;
use crate::replication::{Batch, Link};
use crate::resp::Request;
use crate::resp::fail::Done;
use crate::run::watches::Watch;
use crate::store::database::Database;
use crate::store::{Snapshot, Space};

/// Commands queued for `EXEC`.
#[derive(Debug, Default)]
pub struct Multi {
    /// The queued commands.
    pub queue: Vec<Request>,
    /// Set when a command was refused: `EXEC` will fail.
    pub has_failed: bool,
    /// Set if a command may change data or publish a message.
    pub may_write: bool,
    /// Set if a command must be the first of its commit.
    pub is_first_of_commit: bool,
    /// Bytes that the queued commands use.
    pub bytes: usize,
}

/// Which replies a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// All replies.
    #[default]
    On,
    /// No replies.
    Off,
    /// No reply to the next command.
    SkipNext,
    /// No reply to this command.
    Skip,
}

/// State when a command began to wait for other servers.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Newest commit.
    pub seq: u64,
    /// Set if this server was a replica.
    pub was_replica: bool,
}

/// The user of a connection.
#[derive(Default)]
pub struct Login {
    /// Set if the connection has logged in, or need not.
    pub is_known: bool,
    /// The user, or `None` if it is not known.
    pub user: Option<Arc<User>>,
    /// Generation of the users when `user` was taken.
    pub users_generation: u64,
}

/// How the current command of a connection runs.
#[derive(Default)]
pub struct Turn {
    /// Set if it runs inside `EXEC` or a script, where it may not wait.
    pub is_inside: bool,
    /// Set if it has waited and is being retried.
    pub is_again: bool,
    /// Keys that the command names, or `None` if it may use others, too. The data layer checks accesses
    /// against them in tests.
    #[cfg(debug_assertions)]
    pub named: Option<Vec<Vec<u8>>>,
    /// Set if its look-ups of keys count as accesses (`track-accesses`).
    pub is_access: bool,
    /// Set if it has changed stored data directly, without the transaction of its commit.
    pub has_written: bool,
    /// State when it began to wait for other servers.
    pub awaited: Option<Moment>,
    /// Commits that it waited for.
    pub fed: Option<Done<Batch>>,
    /// Number of times that changes of tracked keys were reported before the state that it reads was taken
    /// (tracking.2).
    pub rounds: u64,
}

/// Where the commands of a connection work, if not in its database.
#[derive(Default)]
pub struct Places {
    /// Space of ordered commands. `None` means that of the database.
    pub space: Option<Space>,
    /// Keyspace of rows. `None` means the keyspace `default`.
    pub rows: Option<Space>,
    /// Snapshots held by the connection.
    pub snapshots: BTreeMap<u64, Arc<dyn Snapshot>>,
    /// Set if the commands come from an import: no key has expired for them, because the source may have
    /// prolonged its lifetime. `CLIENT IMPORT-SOURCE` sets it.
    pub is_import: bool,
}

/// The state of a connection that its commands use.
pub struct Session {
    /// The part of the connection that is visible to others.
    pub client: Arc<Client>,
    /// Number of the current database.
    pub db: usize,
    /// The current database.
    pub data: Arc<Database>,
    /// Generation of the databases when `data` was taken.
    pub generation: u64,
    /// The user of the connection.
    pub login: Login,
    /// Commands queued since `MULTI`.
    pub multi: Option<Multi>,
    /// Keys watched by the connection.
    pub watch: Option<Watch>,
    /// How its current command runs.
    pub turn: Turn,
    /// Which replies the client wants.
    pub reply: ReplyMode,
    /// Set if the connection ends after the reply.
    pub is_over: bool,
    /// Names of the subscriptions, by `Hearing`.
    pub subscribed: [BTreeSet<Vec<u8>>; Hearing::COUNT],
    /// Where its commands work.
    pub places: Places,
    /// Set when the connection belongs to a replica, which receives commits from here on.
    pub link: Option<Link>,
    /// State held across requests, such as transactions.
    pub own: Own,
}

impl Session {
    /// Returns the state of a new connection.
    pub fn new(client: Arc<Client>, data: Arc<Database>, is_known: bool) -> Self {
        Session {
            client,
            db: data.number,
            data,
            generation: 0,
            login: Login { is_known, ..Login::default() },
            multi: None,
            watch: None,
            turn: Turn::default(),
            reply: ReplyMode::On,
            is_over: false,
            subscribed: Default::default(),
            places: Places::default(),
            link: None,
            own: Own::default(),
        }
    }

    /// Sets the user. `None` logs the connection out.
    pub fn become_user(&mut self, user: Option<Arc<User>>) {
        self.login.is_known = user.is_some();
        *self.client.user.lock() = user.as_ref().map_or(String::new(), |user| user.name.clone());
        self.login.user = user;
    }

    /// Returns where its ordered commands work.
    pub fn namespace(&self) -> Namespace {
        match &self.places.space {
            Some(space) => Namespace::keyspace(space.clone()),
            None => Namespace { space: self.data.main.clone(), database: Some(self.data.number) },
        }
    }

    /// Returns whether the connection receives messages that answer no request.
    pub fn is_subscribed(&self) -> bool {
        self.subscriptions() + self.own.subscriptions() > 0
    }

    /// Returns the number of subscribed channels and patterns.
    pub fn subscriptions(&self) -> usize {
        self.subscribed.iter().map(BTreeSet::len).sum()
    }

    /// Publishes the number of subscribed channels and patterns to other connections.
    pub fn count_subscriptions(&self) {
        for (names, count) in self.subscribed.iter().zip(&self.client.counts.subscribed) {
            count.store(names.len(), Ordering::Relaxed);
        }
    }

    /// Returns whether commands queued since `MULTI` may write.
    pub fn queues_writes(&self) -> bool {
        self.multi.as_ref().is_some_and(|multi| multi.may_write)
    }

    /// Takes the commands queued since `MULTI`.
    pub fn take_multi(&mut self) -> Option<Multi> {
        self.client.counts.queued.store(0, Ordering::Relaxed);
        self.multi.take()
    }
}
