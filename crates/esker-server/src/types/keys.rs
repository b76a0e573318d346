//! Whole keys: reads, writes and removes main records, with everything that follows.

use super::subkey::{parts_prefix, ttl_key};
use crate::base::events::Event;
use crate::resp::fail::{Done, Fail};
use crate::run::cx::Cx;
use crate::store::record::{Kind, Main, encode_string};

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
        if main.has_expired(self.now) {
            if self.access.can_write() && !self.server.replication.is_replica() {
                self.remove_expired(key, &main)?;
            }
            return Ok(None);
        }
        Ok(Some(main))
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
        let put = self.put_main(key, old, expires, &bytes);
        self.effects.scratch = bytes;
        put
    }

    /// Replaces a main record. The parts of the old one become garbage.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn put_main(&mut self, key: &[u8], old: Option<&Main>, expires: u64, bytes: &[u8]) -> Done {
        if let Some(old) = old {
            self.retire(old)?;
        }
        self.store_main(key, old.map_or(0, |old| old.expires), expires, bytes)
    }

    /// Writes a main record and the entry for its expiry (data.1).
    pub(super) fn store_main(&mut self, key: &[u8], expired: u64, expires: u64, bytes: &[u8]) -> Done {
        self.check_is_named(key);
        self.step(bytes.len())?;
        if self.server.config.wants(Event::New) && self.main(key)?.is_none() {
            self.event(Event::New, "new", key);
        }
        let (data, transaction) = (&self.session.data, self.access.transaction()?);
        if expired != expires {
            if expired != 0 {
                transaction.remove(&data.ttl, &ttl_key(expired, key))?;
            }
            if expires != 0 {
                transaction.put(&data.ttl, &ttl_key(expires, key), b"")?;
            }
        }
        transaction.put(&data.main, key, bytes)?;
        self.touch(key);
        Ok(())
    }

    /// Makes the parts of a main record garbage (data.3).
    fn retire(&mut self, old: &Main) -> Done {
        if !old.has_parts() {
            return Ok(());
        }
        let version = old.shape()?.version;
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
        self.store_main(key, old.expires, expires, &old.with_expiry(expires))
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
        self.forget_main(key, old.expires)
    }

    /// Removes a main record whose parts are removed already.
    pub(super) fn forget_main(&mut self, key: &[u8], expired: u64) -> Done {
        self.check_is_named(key);
        let (data, transaction) = (&self.session.data, self.access.transaction()?);
        transaction.remove(&data.main, key)?;
        if expired != 0 {
            transaction.remove(&data.ttl, &ttl_key(expired, key))?;
        }
        Ok(())
    }

    /// Moves the contents of a key to another key, replacing what that holds.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn rename_key(&mut self, from: &[u8], main: &Main, to: &[u8]) -> Done {
        let old = self.main(to)?;
        self.forget_main(from, main.expires)?;
        self.touch(from);
        self.put_main(to, old.as_ref(), main.expires, main.raw())
    }
}
