//! An upload in parts, several at a time.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use esker::backup::Upload;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartId, PutPayload};
use tokio::task::JoinSet;

use crate::{Requests, failed};

/// Parts sent at a time. Each is in memory.
const PARTS_AT_ONCE: usize = 4;

type Sent = (usize, object_store::Result<PartId>);

#[derive(Debug)]
pub(crate) struct S3Upload {
    requests: Arc<Requests>,
    path: Path,
    id: MultipartId,
    sending: JoinSet<Sent>,
    /// Number of parts so far.
    parts: usize,
    stored: BTreeMap<usize, PartId>,
}

impl S3Upload {
    pub(crate) fn new(requests: Arc<Requests>, path: Path, id: MultipartId) -> S3Upload {
        S3Upload { requests, path, id, sending: JoinSet::new(), parts: 0, stored: BTreeMap::new() }
    }

    /// Waits until at most `max` parts are being sent.
    fn wait(&mut self, max: usize) -> io::Result<()> {
        while self.sending.len() > max {
            let Some(sent) = self.requests.runtime.block_on(self.sending.join_next()) else { break };
            let (part, stored) = sent.map_err(io::Error::other)?;
            self.stored.insert(part, stored.map_err(failed)?);
        }
        Ok(())
    }
}

impl Upload for S3Upload {
    fn id(&self) -> &str {
        &self.id
    }

    fn write(&mut self, part: Vec<u8>) -> io::Result<()> {
        self.wait(PARTS_AT_ONCE - 1)?;
        let (requests, path, id, number) =
            (self.requests.clone(), self.path.clone(), self.id.clone(), self.parts);
        let send = async move {
            (number, requests.client.put_part(&path, &id, number, PutPayload::from(part)).await)
        };
        self.sending.spawn_on(send, self.requests.runtime.handle());
        self.parts += 1;
        Ok(())
    }

    fn complete(&mut self) -> io::Result<()> {
        self.wait(0)?;
        if self.stored.len() != self.parts {
            return Err(io::Error::other("a part of the upload was not stored"));
        }
        let parts = std::mem::take(&mut self.stored).into_values().collect();
        let complete = self.requests.client.complete_multipart(&self.path, &self.id, parts);
        self.requests.runtime.block_on(complete).map(drop).map_err(failed)
    }
}
