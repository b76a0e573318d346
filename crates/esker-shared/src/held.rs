//! The connection to a state that the host holds, and its reads: of [`SharedSnapshot`](crate::SharedSnapshot)
//! and [`SharedTransaction`](crate::SharedTransaction), written once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::guest::Link;
use crate::inner::Inner;
use crate::protocol::{Reply, Request};

/// What a snapshot or transaction shares with its iterators.
pub(crate) struct HeldLink {
    /// `None`: the snapshot or transaction has ended.
    link: Mutex<Option<Link>>,
    /// Whether the last call, also of an iterator, failed in a way after which the transaction can run again.
    /// Relaxed: it orders nothing.
    can_restart: AtomicBool,
}

impl HeldLink {
    pub(crate) fn new(link: Link) -> Arc<Self> {
        Arc::new(HeldLink { link: Mutex::new(Some(link)), can_restart: AtomicBool::new(false) })
    }

    /// Ends it. Calls of its iterators fail from then on.
    pub(crate) fn take(&self) -> Option<Link> {
        self.link.lock().take()
    }

    /// Returns whether the last call failed in a way after which the transaction can run again.
    pub(crate) fn can_restart(&self) -> bool {
        self.can_restart.load(Ordering::Relaxed)
    }

    /// Runs a request.
    pub(crate) fn ask(&self, request: &Request<'_>, inner: &Inner) -> Result<Reply> {
        let reply = self.call(request, inner);
        let can_restart = reply.as_ref().is_err_and(Error::asks_for_restart);
        self.can_restart.store(can_restart, Ordering::Relaxed);
        reply
    }

    /// Runs a request that does not change whether the transaction has to run again, unless the host goes.
    pub(crate) fn ask_aside(&self, request: &Request<'_>, inner: &Inner) -> Result<()> {
        let done = self.call(request, inner).map(drop);
        if done.as_ref().is_err_and(Error::asks_for_restart) {
            self.can_restart.store(true, Ordering::Relaxed);
        }
        done
    }

    fn call(&self, request: &Request<'_>, inner: &Inner) -> Result<Reply> {
        match &mut *self.link.lock() {
            Some(link) => inner.ask(link, request),
            None => {
                let text = "the transaction or snapshot of this iterator has ended";
                Err(esker::Error::Invalid(text.to_owned()).into())
            }
        }
    }
}

/// Implements the reads. The type has `ask(&self, &Request) -> Result<Reply>`, `inner` and `link`.
macro_rules! held_reads {
    ($type:ty) => {
        impl $type {
            /// The value of a key.
            ///
            /// # Errors
            /// [`Error::Db`](crate::Error::Db); [`Error::HostGone`](crate::Error::HostGone). All reads have
            /// these.
            pub fn get(&self, keyspace: &SharedKeyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                check_of(&self.inner, keyspace)?;
                self.ask(&Request::Get(At::Held, keyspace.id, Bytes(key.as_ref())))?.into_value()
            }

            /// Whether a key exists.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn contains(&self, keyspace: &SharedKeyspace, key: impl AsRef<[u8]>) -> Result<bool> {
                check_of(&self.inner, keyspace)?;
                self.ask(&Request::Contains(At::Held, keyspace.id, Bytes(key.as_ref())))?.into_bool()
            }

            /// The remaining lifetime of a key. `None`: the key does not exist.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn ttl(&self, keyspace: &SharedKeyspace, key: impl AsRef<[u8]>) -> Result<Option<Ttl>> {
                check_of(&self.inner, keyspace)?;
                self.ask(&Request::Ttl(At::Held, keyspace.id, Bytes(key.as_ref())))?.into_ttl()
            }

            /// The values of several keys.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn multi_get<K: AsRef<[u8]>>(
                &self,
                keyspace: &SharedKeyspace,
                keys: &[K],
            ) -> Result<Vec<Option<Value>>> {
                check_of(&self.inner, keyspace)?;
                let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
                multi_get(&keys, |keys| self.ask(&Request::MultiGet(At::Held, keyspace.id, keys)))
            }

            /// The entries of a range, from either end.
            pub fn range(&self, keyspace: &SharedKeyspace, range: impl KeyBounds) -> SharedRange {
                match check_of(&self.inner, keyspace) {
                    Ok(()) => SharedRange::held(&self.inner, &self.link, keyspace.id, &range),
                    Err(error) => SharedRange::failed(error),
                }
            }

            /// The entries whose keys have this prefix, from either end.
            pub fn prefix(&self, keyspace: &SharedKeyspace, prefix: impl AsRef<[u8]>) -> SharedRange {
                self.range(keyspace, prefix_range(prefix.as_ref()))
            }

            /// The first entry.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn first(&self, keyspace: &SharedKeyspace) -> Result<Option<(Key, Value)>> {
                self.range(keyspace, ..).of_one().next().transpose()
            }

            /// The last entry.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn last(&self, keyspace: &SharedKeyspace) -> Result<Option<(Key, Value)>> {
                self.range(keyspace, ..).of_one().next_back().transpose()
            }

            /// The exact number of keys.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn len(&self, keyspace: &SharedKeyspace) -> Result<u64> {
                check_of(&self.inner, keyspace)?;
                self.ask(&Request::Len(At::Held, keyspace.id))?.into_count()
            }

            /// Whether there are no keys.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn is_empty(&self, keyspace: &SharedKeyspace) -> Result<bool> {
                Ok(self.first(keyspace)?.is_none())
            }
        }
    };
}
pub(crate) use held_reads;
