//! What a connection is to the commands that it sends. It goes with them to where they run, and comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::acl::User;
use crate::base::fail::Done;
use crate::clients::Client;
use crate::clients::pubsub::Hearing;
use crate::replication::{Batch, Link};
use crate::resp::Request;
use crate::run::watches::Watch;
use crate::store::holdings::Own;
use crate::store::holdings::place::Place;
use crate::store::{Snapshot, Space};
use crate::types::Database;

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub struct Multi {
    /// The commands.
    pub queue: Vec<Request>,
    /// One was refused, so all will be.
    pub has_failed: bool,
    /// One may change data, or tell somebody something.
    pub may_write: bool,
    /// One has to come first in its commit.
    pub is_first_of_commit: bool,
    /// Memory that they take.
    pub bytes: usize,
}

/// Which replies a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// None of the next command.
    SkipNext,
    /// None of this one.
    Skip,
}

/// When a command began to wait for other servers.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The newest commit.
    pub seq: u64,
    /// This server was a replica.
    pub was_replica: bool,
}

/// Who a connection has logged in as.
#[derive(Default)]
pub struct Login {
    /// It has logged in, or need not.
    pub is_known: bool,
    /// Its user; none if that is not known.
    pub user: Option<Arc<User>>,
    /// The state of the users when `user` was taken.
    pub users_generation: u64,
}

/// How the command of a connection runs.
#[derive(Default)]
pub struct Turn {
    /// It runs inside of `EXEC` or a script: it may not wait.
    pub is_inside: bool,
    /// It has waited, and is tried again.
    pub is_again: bool,
    /// The keys that it names; none if it may use others, too. The data layer checks it in tests.
    #[cfg(debug_assertions)]
    pub named: Option<Vec<Vec<u8>>>,
    /// What it waits for is measured by this.
    pub awaited: Option<Moment>,
    /// The commits that it has waited for.
    pub fed: Option<Done<Batch>>,
}

/// Where the commands of a connection work, if not in its database.
#[derive(Default)]
pub struct Places {
    /// The space of ordered commands; none: that of the database.
    pub space: Option<Space>,
    /// The keyspace of rows; none: the one called `default`.
    pub rows: Option<Space>,
    /// Snapshots that it holds.
    pub snapshots: BTreeMap<u64, Arc<dyn Snapshot>>,
}

/// What a connection is to its commands.
pub struct Session {
    /// What others see of it.
    pub client: Arc<Client>,
    /// The number of its database.
    pub db: usize,
    /// Its database.
    pub data: Arc<Database>,
    /// The generation of the databases when `data` was taken.
    pub generation: u64,
    /// Who it has logged in as.
    pub login: Login,
    /// Between `MULTI` and `EXEC`.
    pub multi: Option<Multi>,
    /// Keys that it watches.
    pub watch: Option<Watch>,
    /// How its command runs.
    pub turn: Turn,
    /// Which replies it wants.
    pub reply: ReplyMode,
    /// The connection ends after the reply.
    pub is_over: bool,
    /// What it is subscribed to, by `Hearing`.
    pub subscribed: [BTreeSet<Vec<u8>>; Hearing::COUNT],
    /// Where its commands work.
    pub places: Places,
    /// It is a replica's, which gets commits from now on.
    pub link: Option<Link>,
    /// What it holds over many requests.
    pub own: Own,
}

impl Session {
    /// Of a new connection.
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

    /// It is this user from now on, or nobody.
    pub fn become_user(&mut self, user: Option<Arc<User>>) {
        self.login.is_known = user.is_some();
        *self.client.user.lock() = user.as_ref().map_or(String::new(), |user| user.name.clone());
        self.login.user = user;
    }

    /// Where its ordered commands work.
    pub fn place(&self) -> Place {
        match &self.places.space {
            Some(space) => Place::keyspace(space.clone()),
            None => Place { space: self.data.main.clone(), database: Some(self.data.number) },
        }
    }

    /// Whether it is sent messages that answer no request.
    pub fn is_subscribed(&self) -> bool {
        self.subscriptions() + self.own.subscriptions() > 0
    }

    /// Channels and patterns that it is subscribed to.
    pub fn subscriptions(&self) -> usize {
        self.subscribed.iter().map(BTreeSet::len).sum()
    }

    /// Notes for others how many channels and patterns it is subscribed to.
    pub fn count_subscriptions(&self) {
        for (names, count) in self.subscribed.iter().zip(&self.client.counts.subscribed) {
            count.store(names.len(), Ordering::Relaxed);
        }
    }

    /// Whether commands that were queued since `MULTI` may write.
    pub fn queues_writes(&self) -> bool {
        self.multi.as_ref().is_some_and(|multi| multi.may_write)
    }

    /// Takes the commands that were queued since `MULTI`.
    pub fn take_multi(&mut self) -> Option<Multi> {
        self.client.counts.queued.store(0, Ordering::Relaxed);
        self.multi.take()
    }
}
