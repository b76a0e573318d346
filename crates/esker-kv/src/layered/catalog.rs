//! The names and ids of spaces.

use std::ops::Bound;

use bytes::{BufMut, Bytes, BytesMut};

use super::{Driver, Handle, Layered, View, Write, data_range};
use crate::page::Query;
use crate::transact::Retry;
use crate::{Error, Result, Space, Span, prefix_end};

/// Keys of a dropped space that are removed in one transaction.
const DROP_ENTRIES: usize = 2_000;

fn space_key(name: &str) -> Bytes {
    [b"\0s", name.as_bytes()].concat().into()
}

fn id_key(kind: u8, id: u32) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_slice(&[0, kind]);
    bytes.put_u32(id);
    bytes.freeze()
}

/// The key of the record with the name of a space.
pub(super) fn name_key(id: u32) -> Bytes {
    id_key(b'i', id)
}

/// The key of the next id. It is there from the first space on.
pub(crate) const NEXT_KEY: Bytes = Bytes::from_static(b"\0n");

fn decode(bytes: &[u8]) -> Result<u32> {
    let bytes = bytes.try_into().map_err(|_| Error::other("the store's record of a space is damaged"))?;
    Ok(u32::from_be_bytes(bytes))
}

fn encode(id: u32) -> Bytes {
    Bytes::copy_from_slice(&id.to_be_bytes())
}

fn put_space(name: &str, id: u32) -> [Write; 2] {
    let name_bytes = Bytes::copy_from_slice(name.as_bytes());
    [Write::Put(space_key(name), encode(id)), Write::Put(name_key(id), name_bytes)]
}

impl<D: Driver> Layered<D> {
    fn handle(&self, name: &str, id: u32) -> Space {
        Space::new(name, Handle { id, store: self.store() })
    }

    /// Runs a change of the catalog until it does not conflict.
    async fn change<T, F>(&self, change: impl Fn(D::View) -> F) -> Result<T>
    where
        F: Future<Output = Result<(D::View, Vec<Write>, T)>>,
    {
        let retry = Retry::default();
        let mut attempt = 1;
        loop {
            let done = async {
                let (view, writes, value) = change(self.driver.view(false).await?).await?;
                if !writes.is_empty() {
                    view.commit(writes).await?;
                }
                Ok(value)
            };
            match done.await {
                Err(error) if Error::is_retryable(&error) && attempt < retry.attempts => {
                    tokio::time::sleep(retry.pause(attempt)).await;
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    pub(super) async fn find(&self, name: &str) -> Result<Option<Space>> {
        let id = self.driver.get(&space_key(name)).await?;
        id.map(|id| Ok(self.handle(name, decode(&id)?))).transpose()
    }

    pub(super) async fn open_space(&self, name: &str) -> Result<Space> {
        if name.is_empty() || name.len() > 255 {
            return Err(Error::Invalid(format!("{name:?} is no name of a space: 1 to 255 bytes")));
        }
        if let Some(found) = self.find(name).await? {
            return Ok(found);
        }
        let id = self
            .change(async |mut view: D::View| {
                if let Some(id) = view.get_for_update(&space_key(name)).await? {
                    return Ok((view, Vec::new(), decode(&id)?));
                }
                let id = view.get_for_update(&NEXT_KEY).await?.map_or(Ok(0), |id| decode(&id))?;
                // The last id has no id behind it, which ends its keys.
                let next = id.checked_add(1).filter(|next| *next < u32::MAX);
                let next = next.ok_or_else(|| Error::TooLarge("all ids of spaces are used".to_owned()))?;
                let mut writes = put_space(name, id).to_vec();
                writes.push(Write::Put(NEXT_KEY, encode(next)));
                Ok((view, writes, id))
            })
            .await?;
        Ok(self.handle(name, id))
    }

    pub(super) async fn names(&self) -> Result<Vec<String>> {
        let view = self.driver.view(true).await?;
        let entries = all(&view, b"\0s").await?;
        Ok(entries.iter().map(|(key, _)| String::from_utf8_lossy(&key[2..]).into_owned()).collect())
    }

    pub(super) async fn drop_named(&self, name: &str) -> Result<()> {
        let was_there = self
            .change(async |mut view: D::View| {
                let Some(id) = view.get_for_update(&space_key(name)).await? else {
                    return Ok((view, Vec::new(), false));
                };
                let id = decode(&id)?;
                let writes = vec![
                    Write::Remove(space_key(name)),
                    Write::Remove(name_key(id)),
                    Write::Put(id_key(b'd', id), Bytes::new()),
                ];
                Ok((view, writes, true))
            })
            .await?;
        if was_there { self.finish_drops().await } else { Ok(()) }
    }

    /// Removes the keys of dropped spaces, in transactions that no store finds too large.
    pub(super) async fn finish_drops(&self) -> Result<()> {
        let dropped = all(&self.driver.view(true).await?, b"\0d").await?;
        for (key, _) in dropped {
            let id = decode(&key[2..])?;
            while self.remove_some(id).await? {}
            self.change(async |view| Ok((view, vec![Write::Remove(key.clone())], ()))).await?;
        }
        Ok(())
    }

    /// Removes some keys of a dropped space. Returns whether there were any.
    async fn remove_some(&self, id: u32) -> Result<bool> {
        let (from, to) = data_range(id, &Span::ALL);
        self.change(async |view: D::View| {
            let query = Query::new(Span::between(&from, &to)).entries(DROP_ENTRIES);
            let page = view.page(query).await?;
            let writes: Vec<_> = page.entries.into_iter().map(|(key, _)| Write::Remove(key)).collect();
            let some = !writes.is_empty();
            Ok((view, writes, some))
        })
        .await
    }

    pub(super) async fn rename(&self, names: &[(&str, &str)]) -> Result<()> {
        self.change(async |mut view: D::View| {
            let mut ids = std::collections::BTreeMap::new();
            for name in names.iter().flat_map(|(from, to)| [*from, *to]) {
                let id = view.get_for_update(&space_key(name)).await?;
                ids.insert(name, id.map(|id| decode(&id)).transpose()?);
            }
            for (from, to) in names {
                let id = ids.insert(*from, None).flatten();
                let id = id.ok_or_else(|| Error::Invalid(format!("there is no space {from:?}")))?;
                if ids.insert(*to, Some(id)).flatten().is_some() {
                    return Err(Error::Invalid(format!("there is a space {to:?} already")));
                }
            }
            let writes = ids.into_iter().flat_map(|(name, id)| match id {
                Some(id) => put_space(name, id).to_vec(),
                None => vec![Write::Remove(space_key(name))],
            });
            Ok((view, writes.collect(), ()))
        })
        .await
    }
}

/// Returns all entries with a prefix.
async fn all<V: View>(view: &V, prefix: &[u8]) -> Result<Vec<crate::Entry>> {
    let end = prefix_end(prefix).unwrap_or_default();
    let mut entries: Vec<crate::Entry> = Vec::new();
    loop {
        let lower = match entries.last() {
            Some((key, _)) => Bound::Excluded(&key[..]),
            None => Bound::Included(prefix),
        };
        let page = view.page(Query::new(Span { lower, upper: Bound::Excluded(&end) })).await?;
        let is_last = !page.has_more || page.entries.is_empty();
        entries.extend(page.entries);
        if is_last {
            return Ok(entries);
        }
    }
}
