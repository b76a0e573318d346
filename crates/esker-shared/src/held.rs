//! The reads of a state that the host holds: of [`SharedSnapshot`](crate::SharedSnapshot) and
//! [`SharedTransaction`](crate::SharedTransaction), written once.

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
