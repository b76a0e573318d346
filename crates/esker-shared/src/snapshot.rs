//! `SharedSnapshot`: the state of a shared database at one commit.

use std::sync::Arc;

use esker::{Key, KeyBounds, SeqNo, Ttl, Value};

use crate::error::Result;
use crate::held::{HeldLink, held_reads};
use crate::inner::Opened;
use crate::keyspace::{SharedKeyspace, check_of, prefix_range};
use crate::protocol::{At, Bytes, Reply, Request};
use crate::range::{SharedRange, multi_get};

/// The state of all keyspaces at one commit. A guest's snapshot has a connection of its own, and ends with
/// the host: then its reads fail with [`Error::HostGone`](crate::Error::HostGone).
pub struct SharedSnapshot {
    inner: Arc<Opened>,
    link: Arc<HeldLink>,
    seqno: SeqNo,
}

impl SharedSnapshot {
    pub(crate) fn new(inner: &Arc<Opened>) -> Result<Self> {
        let (reply, link) = inner.read_with(&Request::Hold)?;
        let (link, seqno) = (HeldLink::new(link), reply.into_seqno()?);
        Ok(SharedSnapshot { inner: inner.clone(), link, seqno })
    }

    /// The number of its commit.
    pub fn seqno(&self) -> SeqNo {
        self.seqno
    }

    fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        self.link.ask(request, &self.inner)
    }
}

held_reads!(SharedSnapshot);

impl Drop for SharedSnapshot {
    fn drop(&mut self) {
        // Iterators of it fail from then on.
        if let Some(link) = self.link.take() {
            self.inner.release(link);
        }
    }
}
