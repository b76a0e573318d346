//! What a command works with.
//!
//! ```text
//!   command --+-- server    what all connections share
//!             +-- session   what its connection is
//!             +-- access    the data: as of now, as of one moment, or in a transaction
//!             +-- effects   what is done once it has committed
//!             `-- out       its reply
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::fail::{Done, Fail};
use crate::base::numbers::shown;
use crate::resp::Out;
use crate::run::effects::{Effects, Event};
use crate::run::server::Server;
use crate::run::session::Session;
use crate::store::holdings::place::{Place, database_name};
use crate::store::holdings::topics::{Change, Saying};
use crate::store::spans::Stretch;
use crate::store::{Reads, Snapshot, Store, Transaction};
use crate::types::Database;

/// How a command reaches the data.
pub enum Access {
    /// The newest state, each read by itself.
    Now(Arc<dyn Store>),
    /// One state.
    At(Arc<dyn Snapshot>),
    /// A transaction.
    Write(Box<dyn Transaction>),
}

impl Access {
    /// Its reads.
    pub fn reads(&self) -> &dyn Reads {
        match self {
            Access::Now(store) => &**store,
            Access::At(snapshot) => &**snapshot,
            Access::Write(transaction) => &**transaction,
        }
    }

    /// Whether it takes writes.
    pub fn can_write(&self) -> bool {
        matches!(self, Access::Write(_))
    }

    /// The transaction to write to.
    ///
    /// # Errors
    /// The command is not declared as one that writes.
    pub fn transaction(&mut self) -> Done<&mut dyn Transaction> {
        match self {
            Access::Write(transaction) => Ok(&mut **transaction),
            _ => Err("ERR this command may not write here".into()),
        }
    }
}

/// What a command works with.
pub struct Cx<'a> {
    /// What all connections share.
    pub server: &'a Arc<Server>,
    /// The connection.
    pub session: &'a mut Session,
    /// The data.
    pub access: &'a mut Access,
    /// What is done once the command has committed.
    pub effects: &'a mut Effects,
    /// The reply.
    pub out: &'a mut Out,
    /// The time, in milliseconds since 1970.
    pub now: u64,
}

impl Cx<'_> {
    /// A version for a collection that is made: larger than all before.
    ///
    /// # Errors
    /// The command may not write.
    pub fn new_version(&mut self) -> Done<u64> {
        // Numbers of the history grow on all servers that share it (store.2); those of the engine need not.
        let version = self.access.transaction()?.version();
        let base = self.server.replication.version(version) << 16;
        self.effects.versions += 1;
        if self.effects.versions > 0xFFFF {
            return Err("ERR too many collections made at once".into());
        }
        Ok(base | self.effects.versions)
    }

    /// A key of the database has changed: who watches it is told.
    pub fn touch(&mut self, key: &[u8]) {
        self.effects.changes += 1;
        // One that is tried again in vain has changed nothing that others wait for, or they would try each
        // other for ever.
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

    /// A key of a keyspace has changed.
    pub fn changed(&mut self, place: &Place, key: &[u8], how: &str) {
        if !self.server.holdings.changes.is_empty() {
            self.tell_change(place.name(), key, how);
        }
    }

    /// All keys of a database may have changed: who watches some is told.
    pub fn touch_all(&mut self, database: usize) {
        self.server.watches.touch_all(database);
        self.replaced(database);
        self.all_changed(database_name(database));
    }

    /// All keys of a database may have changed: who waits for some looks again.
    pub fn replaced(&mut self, database: usize) {
        if self.server.sequencer.has_waiters() {
            self.effects.replaced.push(database);
        }
    }

    /// All keys of a place may have changed.
    pub fn all_changed(&mut self, place: String) {
        self.effects.changed.push(Change::Stretch(place, Stretch::range(b"", b""), "all"));
    }

    /// Keys of a keyspace were removed.
    pub fn removed(&mut self, place: &Place, stretch: Stretch) {
        if !self.server.holdings.changes.is_empty() {
            self.effects.changed.push(Change::Stretch(place.name(), stretch, "delrange"));
        }
    }

    fn tell_change(&mut self, place: String, key: &[u8], how: &str) {
        let change = Change::Key(Saying { place, topic: key.to_vec(), message: how.as_bytes().to_vec() });
        if self.effects.changed.last() != Some(&change) {
            self.effects.count(key.len() + how.len());
            self.effects.changed.push(change);
        }
    }

    /// Something happened to a key that subscribers may want to hear of.
    pub fn event(&mut self, event: Event, name: &str, key: &[u8]) {
        let wanted = self.server.config.events();
        if wanted != 0 {
            self.effects.event(wanted, event, name, self.session.db, key);
        }
    }

    /// A key may now have what somebody waits for.
    pub fn filled(&mut self, key: &[u8]) {
        if self.server.sequencer.has_waiters() {
            self.effects.count(key.len());
            self.effects.filled.push((self.session.db, key.to_vec()));
        }
    }

    /// Bytes that the effects of a script or a transaction may take (effects.2).
    pub fn effects_max(&self) -> usize {
        self.server.commands.memory.effects.load(Ordering::Relaxed)
    }

    /// Works in another database while `body` runs.
    ///
    /// # Errors
    /// There is no such database; and those of `body`.
    pub fn in_database<T>(&mut self, number: usize, body: impl FnOnce(&mut Self) -> Done<T>) -> Done<T> {
        let other = self.server.database(number)?;
        let own: (usize, Arc<Database>) = (self.session.db, std::mem::replace(&mut self.session.data, other));
        self.session.db = number;
        let done = body(self);
        (self.session.db, self.session.data) = own;
        done
    }

    /// Called for each piece that a command keeps before it replies or writes (command_memory.1).
    ///
    /// # Errors
    /// It keeps too much; the script that runs the command is to end.
    pub fn gather(&self, bytes: usize) -> Done {
        let gathered = self.effects.progress.gather(bytes);
        let limit = self.server.commands.memory.gathered.load(Ordering::Relaxed);
        if gathered > limit {
            let limit = shown(limit);
            return Err(Fail::text(format!(
                "ERR the command would take more than {limit} of memory: do it in parts"
            )));
        }
        self.step(bytes)
    }

    /// Called for each step that works on this number of bytes.
    ///
    /// # Errors
    /// The script that runs the command is to end (lua.2).
    #[inline]
    pub fn step(&self, bytes: usize) -> Done {
        let is_due = self.effects.progress.step(bytes);
        if is_due && self.session.turn.is_inside && self.server.scripts.must_end() {
            return Err("ERR the script that runs this command was ended".into());
        }
        Ok(())
    }

    /// Runs `body` with the reply apart from the rest, so that it can be written while data is read.
    ///
    /// # Errors
    /// Those of `body`; the reply is too large.
    pub fn with_reply<T>(&mut self, body: impl FnOnce(&Cx<'_>, &mut Out) -> Done<T>) -> Done<T> {
        let mut out = std::mem::take(self.out);
        let done = body(self, &mut out);
        *self.out = out;
        let done = done?;
        self.out.check()?;
        Ok(done)
    }
}
