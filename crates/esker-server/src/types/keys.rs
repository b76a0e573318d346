//! Whole keys: reads, writes and removes main records, with everything that follows.

use super::subkey::{due_key, parts_prefix, ttl_key};
use crate::base::accesses::Note;
use crate::base::events::Event;
use crate::clients::tracking::NO_CLIENT;
use crate::resp::fail::{Done, Fail};
use crate::run::cx::Cx;
use crate::store::record::{Due, Kind, Main, encode_string};

impl Cx<'_> {
    /// Asserts that a command uses only keys that it names, since users' rights go by these.
    #[inline]
    fn check_is_named(&self, key: &[u8]) {
        #[cfg(debug_assertions)]
        if let Some(named) = &self.session.turn.named {
            assert!(named.iter().any(|known| known == key), "a command does not name {}", key.escape_ascii());
        }
        let _ = key;
    }

    /// The main record of a key.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn main(&mut self, key: &[u8]) -> Done<Option<Main>> {
        self.check_is_named(key);
        self.step(key.len())?;
        let Some(raw) = self.access.reads().get(&self.session.data.main, key)? else { return Ok(None) };
        self.step(raw.len())?;
        let main = Main::decode(raw)?;
        if main.has_expired(self.expiry_now()) {
            if self.access.can_write() && !self.server.replication.is_replica() {
                self.remove_expired(key, &main)?;
            }
            return Ok(None);
        }
        self.note_access(key, Note::Access);
        match main.has_due_fields(self.expiry_now())? {
            true => self.with_fields_left(key, main),
            false => Ok(Some(main)),
        }
    }

    /// The main record of a key, if it holds this kind.
    ///
    /// # Errors
    /// If it holds another kind; the store's.
    pub fn main_of(&mut self, key: &[u8], kind: Kind) -> Done<Option<Main>> {
        match self.main(key)? {
            Some(main) if main.kind != kind => Err(Fail::WrongType),
            found => Ok(found),
        }
    }

    /// Removes an expired key.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn remove_expired(&mut self, key: &[u8], main: &Main) -> Done {
        self.remove_main(key, main)?;
        self.server.observed.stats.expired.add(1);
        self.server.clients.tracking.note_writer(key, NO_CLIENT);
        self.touch(key);
        self.event(Event::Expired, "expired", key);
        Ok(())
    }

    /// Sets a key to a string, whatever it held.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn put_string(&mut self, key: &[u8], old: Option<&Main>, text: &[u8], expires: u64) -> Done {
        let mut bytes = std::mem::take(&mut self.effects.scratch);
        bytes.clear();
        encode_string(&mut bytes, expires, text);
        let put = self.put_main(key, old, Due::key(expires), &bytes);
        self.effects.scratch = bytes;
        put
    }

    /// Replaces a main record. The parts of the old one become garbage.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn put_main(&mut self, key: &[u8], old: Option<&Main>, due: Due, bytes: &[u8]) -> Done {
        let mut was_due = Due::default();
        if let Some(old) = old {
            self.retire(old)?;
            was_due = old.due()?;
        } else {
            self.note_access(key, Note::Created);
        }
        self.store_main(key, was_due, due, bytes)
    }

    /// Writes a main record and the entries for its expiry (data.1) and for the deadlines of its fields
    /// (data.4).
    pub(super) fn store_main(&mut self, key: &[u8], was_due: Due, due: Due, bytes: &[u8]) -> Done {
        self.check_is_named(key);
        self.step(bytes.len())?;
        // An expired key was removed when the command looked it up.
        let main = &self.session.data.main;
        if self.server.config.wants(Event::New) && self.access.reads().get(main, key)?.is_none() {
            self.event(Event::New, "new", key);
        }
        self.note_due(key, was_due, due)?;
        self.access.transaction()?.put(&self.session.data.main, key, bytes)?;
        self.touch(key);
        Ok(())
    }

    /// Replaces the entries for the times at which a key or its fields expire (data.1, data.4).
    fn note_due(&mut self, key: &[u8], was: Due, due: Due) -> Done {
        if was == due {
            return Ok(());
        }
        let (data, transaction) = (&self.session.data, self.access.transaction()?);
        let mut note = |space, was, is, entry: fn(u64, &[u8]) -> Vec<u8>| -> Done {
            if was != 0 && was != is {
                transaction.remove(space, &entry(was, key))?;
            }
            if is != 0 && was != is {
                transaction.put(space, &entry(is, key), b"")?;
            }
            Ok(())
        };
        note(&data.ttl, was.key, due.key, ttl_key)?;
        note(&data.sub, was.fields, due.fields, due_key)
    }

    /// Makes the parts of a main record and the deadlines of its fields garbage (data.3).
    fn retire(&mut self, old: &Main) -> Done {
        if old.has_parts() {
            self.retire_version(old.shape()?.version)?;
        }
        if let Some(deadlines) = old.deadlines()? {
            self.retire_version(deadlines.version)?;
        }
        Ok(())
    }

    /// Makes the parts of a version garbage (data.3).
    pub(super) fn retire_version(&mut self, version: u64) -> Done {
        let garbage = &self.session.data.garbage;
        self.access.transaction()?.put(garbage, &parts_prefix(version), b"")?;
        self.server.has_garbage();
        Ok(())
    }

    /// Sets when a key expires; 0: never.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn set_expiry(&mut self, key: &[u8], old: &Main, expires: u64) -> Done {
        let was_due = old.due()?;
        self.store_main(key, was_due, Due { key: expires, ..was_due }, &old.with_expiry(expires))
    }

    /// Removes a key and everything in it.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn remove_key(&mut self, key: &[u8], old: &Main) -> Done {
        self.remove_main(key, old)?;
        self.touch(key);
        Ok(())
    }

    fn remove_main(&mut self, key: &[u8], old: &Main) -> Done {
        self.retire(old)?;
        self.forget_main(key, old.due()?)
    }

    /// Removes a main record whose parts are removed already.
    pub(super) fn forget_main(&mut self, key: &[u8], was_due: Due) -> Done {
        self.check_is_named(key);
        self.access.transaction()?.remove(&self.session.data.main, key)?;
        self.note_due(key, was_due, Due::default())
    }

    /// Moves the contents of a key to another key, replacing what that holds.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn rename_key(&mut self, from: &[u8], main: &Main, to: &[u8]) -> Done {
        let old = self.main(to)?;
        self.forget_main(from, main.due()?)?;
        self.touch(from);
        self.put_main(to, old.as_ref(), main.due()?, main.raw())?;
        if self.session.turn.is_access {
            let data = &self.session.data;
            self.server.config.accesses.rename(data.main.name(), from, to);
        }
        Ok(())
    }
}
