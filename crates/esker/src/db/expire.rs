//! Sets and changes lifetimes of entries: `put_until`, `expire` and `persist`.

use std::time::{Duration, SystemTime};

use super::batch::WriteBatch;
use super::handles::Gather;
use super::keyspace::Keyspace;
use super::transaction::Transaction;
use super::ttl::Ttl;
use super::updates::ViewMut;
use crate::types::expiry::{Expiry, Lifetime};
use crate::types::{Result, SeqNo};

/// Returns the expiry at a moment.
fn expiry_at(end: Option<SystemTime>) -> Option<Expiry> {
    end.map(|end| Expiry::after(0, end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
}

/// Implements `put_until`. `$gather`: the [`Gather`] that it writes to, and the keyspace.
macro_rules! put_until {
    ($handle:ty, |$self:ident $(, $keyspace:ident)?| ($gather:expr, $of:expr)) => {
        impl $handle {
            /// Sets a key to a value that expires at this moment, to the millisecond. `None`: never, whatever
            /// the keyspace's default. A moment in the past is allowed: then the value has expired already.
            ///
            /// # Errors
            /// Those of [`put`](Self::put).
            pub fn put_until(
                &mut $self $(, $keyspace: &Keyspace)?,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                end: Option<SystemTime>,
            ) -> Result<()> {
                let (writes, core, state) = $gather.room_in($of)?;
                writes.put_until(core, state, key.as_ref(), value.as_ref(), expiry_at(end))
            }
        }
    };
}

put_until!(WriteBatch, |self, keyspace| (self, keyspace));
put_until!(Transaction, |self, keyspace| (self, keyspace));
put_until!(ViewMut<'_>, |self| (self.transaction, self.keyspace));

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

impl Keyspace {
    /// Sets a key to a value that expires at this moment: see [`WriteBatch::put_until`]. Returns the number
    /// of the commit.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_until(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        end: Option<SystemTime>,
    ) -> Result<SeqNo> {
        self.write(|core, writes| {
            writes.put_until(core, &self.state, key.as_ref(), value.as_ref(), expiry_at(end))
        })
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
