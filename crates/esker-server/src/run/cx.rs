//! The context in which a command runs.
//!
//! ```text
//!   command --+-- server    state shared by all connections
//!             +-- session   state of the connection
//!             +-- access    the data: newest state, snapshot or transaction
//!             +-- effects   besides changes of data: messages, keys that were filled
//!             `-- out       the reply
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::accesses::Note;
use crate::base::events::Event;
use crate::holdings::namespace::{Namespace, database_name};
use crate::holdings::topics::{Change, Saying};
use crate::resp::Out;
use crate::resp::fail::{Done, Fail};
use crate::resp::numbers::shown;
use crate::run::effects::Effects;
use crate::run::server::Server;
use crate::run::session::Session;
use crate::store::database::Database;
use crate::store::spans::Stretch;
use crate::store::{Reads, Snapshot, Store, Transaction};

/// How a command accesses the data.
pub enum Access {
    /// The newest state. Each read sees the state at its own time.
    Now(Arc<dyn Store>),
    /// A snapshot.
    At(Arc<dyn Snapshot>),
    /// A transaction.
    Write(Box<dyn Transaction>),
}

impl Access {
    /// Returns the reads that this access allows.
    pub fn reads(&self) -> &dyn Reads {
        match self {
            Access::Now(store) => &**store,
            Access::At(snapshot) => &**snapshot,
            Access::Write(transaction) => &**transaction,
        }
    }

    /// Returns whether the access takes writes.
    pub fn can_write(&self) -> bool {
        matches!(self, Access::Write(_))
    }

    /// Returns the transaction to write to.
    ///
    /// # Errors
    /// Fails if the command is not declared as a writing command.
    pub fn transaction(&mut self) -> Done<&mut dyn Transaction> {
        match self {
            Access::Write(transaction) => Ok(&mut **transaction),
            _ => Err("ERR this command may not write here".into()),
        }
    }
}

/// The context in which a command runs.
pub struct Cx<'a> {
    /// State shared by all connections.
    pub server: &'a Arc<Server>,
    /// State of the connection.
    pub session: &'a mut Session,
    /// Access to the data.
    pub access: &'a mut Access,
    /// Effects of the command besides changes of data.
    pub effects: &'a mut Effects,
    /// The reply.
    pub out: &'a mut Out,
    /// Current time, in milliseconds since 1970.
    pub now: u64,
}

impl Cx<'_> {
    /// Returns the time by which keys and fields have expired: for an import, nothing has.
    pub fn expiry_now(&self) -> u64 {
        if self.session.places.is_import { 0 } else { self.now }
    }

    /// Returns a version for a new collection, larger than all earlier versions.
    ///
    /// # Errors
    /// Fails if the command may not write.
    pub fn new_version(&mut self) -> Done<u64> {
        // Versions of the change history grow on all servers that share it (store.2). Versions of the engine
        // need not.
        let version = self.access.transaction()?.version();
        let base = self.server.replication.version(version) << 16;
        self.effects.versions += 1;
        if self.effects.versions > 0xFFFF {
            return Err("ERR too many collections created in one commit".into());
        }
        Ok(base | self.effects.versions)
    }

    /// Records that a key of the database changed, and notifies its watchers.
    pub fn touch(&mut self, key: &[u8]) {
        self.effects.changes += 1;
        self.server.clients.tracking.note_writer(key, self.session.client.id);
        // A waiting command that is retried in vain has changed nothing that others wait for. Otherwise two
        // waiting commands would retry each other forever.
        if self.server.sequencer.minds_changes() && !self.session.turn.is_again {
            self.effects.count(key.len());
            self.effects.filled.push((self.session.db, key.to_vec()));
        }
        if !self.effects.is_quiet {
            self.server.watches.touch(self.session.db, key);
        }
        if !self.server.holdings.changes.is_empty() {
            let data = &self.session.data;
            let is_there = matches!(self.access.reads().get(&data.main, key), Ok(Some(_)));
            self.tell_change(database_name(data.number), key, if is_there { "set" } else { "del" });
        }
    }

    /// Records that a key of a keyspace changed.
    pub fn changed(&mut self, namespace: &Namespace, key: &[u8], how: &str) {
        if !self.server.holdings.changes.is_empty() {
            self.tell_change(namespace.name(), key, how);
        }
    }

    /// Records an access to a key of the database, if the command's accesses count.
    #[inline]
    pub fn note_access(&self, key: &[u8], note: Note) {
        if self.session.turn.is_access {
            self.server.config.accesses.note(self.session.data.main.name(), key, note, self.now);
        }
    }

    /// Records that all keys of a database may have changed, and notifies watchers of any of them.
    pub fn touch_all(&mut self, database: usize) {
        self.server.watches.touch_all(database);
        self.replaced(database);
        self.all_changed(database_name(database));
    }

    /// Records that all keys of a database may have changed, so that commands waiting for some of them are
    /// retried.
    pub fn replaced(&mut self, database: usize) {
        if self.server.sequencer.has_waiters() {
            self.effects.replaced.push(database);
        }
    }

    /// Records that all keys of a place may have changed.
    pub fn all_changed(&mut self, place: String) {
        self.effects.changed.push(Change::Stretch(place, Stretch::range(b"", b""), "all"));
    }

    /// Records that keys of a keyspace were removed.
    pub fn removed(&mut self, namespace: &Namespace, stretch: Stretch) {
        if !self.server.holdings.changes.is_empty() {
            self.effects.changed.push(Change::Stretch(namespace.name(), stretch, "delrange"));
        }
    }

    fn tell_change(&mut self, place: String, key: &[u8], how: &str) {
        let change = Change::Key(Saying { place, topic: key.to_vec(), message: how.as_bytes().to_vec() });
        if self.effects.changed.last() != Some(&change) {
            self.effects.count(key.len() + how.len());
            self.effects.changed.push(change);
        }
    }

    /// Publishes an event of a key to its subscribers.
    pub fn event(&mut self, event: Event, name: &str, key: &[u8]) {
        let wanted = self.server.config.events();
        if wanted != 0 {
            self.effects.event(wanted, event, name, self.session.db, key);
        }
    }

    /// Records that a key may have received what a command waits for.
    pub fn filled(&mut self, key: &[u8]) {
        if self.server.sequencer.has_waiters() {
            self.effects.count(key.len());
            self.effects.filled.push((self.session.db, key.to_vec()));
        }
    }

    /// Returns the maximum bytes of effects of a script or a transaction.
    pub fn effects_max(&self) -> usize {
        self.server.commands.memory.effects.load(Ordering::Relaxed)
    }

    /// Runs `body` in another database.
    ///
    /// # Errors
    /// Fails if there is no such database, or if `body` fails.
    pub fn in_database<T>(&mut self, number: usize, body: impl FnOnce(&mut Self) -> Done<T>) -> Done<T> {
        let other = self.server.database(number)?;
        let own: (usize, Arc<Database>) = (self.session.db, std::mem::replace(&mut self.session.data, other));
        self.session.db = number;
        let done = body(self);
        (self.session.db, self.session.data) = own;
        done
    }

    /// Accounts for a piece that a command keeps before it replies or writes (command_memory.1).
    ///
    /// # Errors
    /// Fails if the command keeps too much, or if the script that runs the command must end.
    pub fn gather(&self, bytes: usize) -> Done {
        let gathered = self.effects.progress.gather(bytes);
        if gathered > self.gathered_max() {
            return Err(self.gathered_too_much());
        }
        self.step(bytes)
    }

    fn gathered_max(&self) -> usize {
        self.server.commands.memory.gathered.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that the command may still keep (command_memory.1).
    pub fn gather_left(&self) -> u64 {
        self.gathered_max().saturating_sub(self.effects.progress.gathered()) as u64
    }

    /// The error of a command that would keep too much.
    pub fn gathered_too_much(&self) -> Fail {
        let limit = shown(self.gathered_max());
        Fail::text(format!("ERR the command would use more than {limit} of memory: split it into parts"))
    }

    /// Accounts for a step of work on this number of bytes.
    ///
    /// # Errors
    /// Fails if the script that runs the command must end (lua.2).
    #[inline]
    pub fn step(&self, bytes: usize) -> Done {
        let is_due = self.effects.progress.step(bytes);
        if is_due && self.session.turn.is_inside && self.server.scripts.must_end() {
            return Err("ERR the script that runs this command was ended".into());
        }
        Ok(())
    }

    /// Runs `body` with the reply borrowed separately, so that it can be written while data is read.
    ///
    /// # Errors
    /// Fails if `body` fails, or if the reply is too large.
    pub fn with_reply<T>(&mut self, body: impl FnOnce(&Cx<'_>, &mut Out) -> Done<T>) -> Done<T> {
        let mut out = std::mem::take(self.out);
        let done = body(self, &mut out);
        *self.out = out;
        let done = done?;
        self.out.check()?;
        Ok(done)
    }
}
