//! Reads and changes lifetimes of entries: `ttl`, `expire` and `persist`.

use std::time::Duration;

use super::keyspace::Keyspace;
use super::ttl::Ttl;
use super::updates::ViewMut;
use crate::types::Result;
use crate::types::expiry::Lifetime;

impl ViewMut<'_> {
    /// Lets a key expire after this time. Returns whether the key exists.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn expire(&mut self, key: impl AsRef<[u8]>, ttl: Duration) -> Result<bool> {
        self.last_for(key.as_ref(), Lifetime::For(ttl))
    }

    /// Removes the expiry of a key. Returns whether the key exists.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn persist(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        match self.ttl(key)? {
            None => Ok(false),
            Some(Ttl::Unlimited) => Ok(true),
            Some(Ttl::Left(_)) => self.last_for(key, Lifetime::Unlimited),
        }
    }

    /// Puts the value of a key again, with this lifetime.
    fn last_for(&mut self, key: &[u8], lifetime: Lifetime) -> Result<bool> {
        let Some(value) = self.get(key)? else { return Ok(false) };
        self.transaction.put_for(self.keyspace, key, &value, lifetime)?;
        Ok(true)
    }
}

/// Each call is a transaction of its own that is repeated until it meets no conflict; see
/// [`Db::transact`](crate::Db::transact). It writes the value again.
impl Keyspace {
    /// Lets a key expire after this time: see [`put_with_ttl`](Self::put_with_ttl). Returns whether the key
    /// exists.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: Duration) -> Result<bool> {
        let key = key.as_ref();
        self.alone(|view| view.expire(key, ttl))
    }

    /// Removes the expiry of a key. Returns whether the key exists.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.alone(|view| view.persist(key))
    }
}
