//! How long entries last: `ttl`, `expire` and `persist`.

use std::time::Duration;

use super::keyspace::Keyspace;
use super::reads::Reads;
use super::updates::ViewMut;
use crate::read::time::Time;
use crate::types::Result;
use crate::types::expiry::{Expiry, Lifetime};

/// How long an entry is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// For ever, or until somebody writes it.
    Unlimited,
    /// So long, in whole milliseconds.
    Left(Duration),
}

impl Ttl {
    /// Of what expires then, or does not.
    pub(super) fn until(expiry: Option<Expiry>, time: &Time) -> Self {
        match expiry {
            None => Ttl::Unlimited,
            Some(expiry) => Ttl::Left(Duration::from_millis(expiry.ms().saturating_sub(time.now_ms()))),
        }
    }
}

impl ViewMut<'_> {
    /// How long a key is still there; none if it is not.
    ///
    /// # Errors
    /// Those of [`Reads::get`].
    pub fn ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<Ttl>> {
        self.transaction.ttl(self.keyspace, key)
    }

    /// Has a key expire after this time. Whether it was there.
    ///
    /// # Errors
    /// Those of [`Reads::get`] and [`put`](Self::put).
    pub fn expire(&mut self, key: impl AsRef<[u8]>, ttl: Duration) -> Result<bool> {
        self.last_for(key.as_ref(), Lifetime::For(ttl))
    }

    /// Has a key last for ever. Whether it was there.
    ///
    /// # Errors
    /// Those of [`Reads::get`] and [`put`](Self::put).
    pub fn persist(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        match self.ttl(key)? {
            None => Ok(false),
            Some(Ttl::Unlimited) => Ok(true),
            Some(Ttl::Left(_)) => self.last_for(key, Lifetime::Unlimited),
        }
    }

    /// Puts a key's value again, for so long.
    fn last_for(&mut self, key: &[u8], lifetime: Lifetime) -> Result<bool> {
        let Some(value) = self.get(key)? else { return Ok(false) };
        self.transaction.put_for(self.keyspace, key, &value, lifetime)?;
        Ok(true)
    }
}

/// Each is a transaction of its own, run again until it meets no conflict; see [`Db::transact`](crate::Db::transact). The value is written again.
impl Keyspace {
    /// Has a key expire after this time: see [`put_with_ttl`](Self::put_with_ttl). Whether it was there.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: Duration) -> Result<bool> {
        let key = key.as_ref();
        self.alone(|view| view.expire(key, ttl))
    }

    /// Has a key last for ever. Whether it was there.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.alone(|view| view.persist(key))
    }
}
