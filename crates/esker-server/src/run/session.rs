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

/// What a connection is to its commands.
pub struct Session {
    /// What others see of it.
    pub client: Arc<Client>,
    /// The number of its database.
    pub db: usize,
    /// Its database.
    pub data: Arc<Database>,
    /// Databases have been exchanged so often when `data` was taken.
    pub generation: u64,
    /// It has said who it is, or need not.
    pub is_known: bool,
    /// Who it is; none if that is not known.
    pub user: Option<Arc<User>>,
    /// Users have been changed so often when `user` was taken.
    pub users_generation: u64,
    /// Between `MULTI` and `EXEC`.
    pub multi: Option<Multi>,
    /// Keys that it watches.
    pub watch: Option<Watch>,
    /// Its commands run inside of `EXEC` or a script: none may wait.
    pub is_inside: bool,
    /// Its command has waited, and is tried again.
    pub is_again: bool,
    /// The keys that its command names; none if it may use others, too. The data layer checks it in tests.
    #[cfg(debug_assertions)]
    pub named: Option<Vec<Vec<u8>>>,
    /// Which replies it wants.
    pub reply: ReplyMode,
    /// The connection ends after the reply.
    pub is_over: bool,
    /// What it is subscribed to, by `Hearing`.
    pub subscribed: [BTreeSet<Vec<u8>>; Hearing::COUNT],
    /// The space that ordered commands work in; none: that of its database.
    pub space: Option<Space>,
    /// It is a replica's, which gets commits from now on.
    pub link: Option<Link>,
    /// What its command waits for is measured by this.
    pub awaited: Option<Moment>,
    /// What its command has waited for, if that was commits.
    pub fed: Option<Done<Batch>>,
    /// Snapshots it holds.
    pub snapshots: BTreeMap<u64, Arc<dyn Snapshot>>,
    /// The keyspace of rows that it works in; none: the one called `default`.
    pub rows: Option<Space>,
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
            is_known,
            user: None,
            users_generation: 0,
            multi: None,
            watch: None,
            is_inside: false,
            is_again: false,
            #[cfg(debug_assertions)]
            named: None,
            reply: ReplyMode::On,
            is_over: false,
            subscribed: Default::default(),
            space: None,
            link: None,
            awaited: None,
            fed: None,
            snapshots: BTreeMap::new(),
            rows: None,
            own: Own::default(),
        }
    }

    /// It is this user from now on, or nobody.
    pub fn become_user(&mut self, user: Option<Arc<User>>) {
        self.is_known = user.is_some();
        *self.client.user.lock() = user.as_ref().map_or(String::new(), |user| user.name.clone());
        self.user = user;
    }

    /// Where its ordered commands work.
    pub fn place(&self) -> Place {
        match &self.space {
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
        for (names, count) in self.subscribed.iter().zip(&self.client.subscribed) {
            count.store(names.len(), Ordering::Relaxed);
        }
    }

    /// Takes the commands that were queued since `MULTI`.
    pub fn take_multi(&mut self) -> Option<Multi> {
        self.client.queued.store(0, Ordering::Relaxed);
        self.multi.take()
    }
}
