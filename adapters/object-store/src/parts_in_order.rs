//! `PartsInOrder`: an upload whose parts are numbered as they are put.

use std::fmt;

use async_trait::async_trait;
use futures::FutureExt;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartId, MultipartUpload, PutPayload, PutResult, UploadPart};

use crate::error::Result;
use crate::store::EskerStore;

/// An upload whose parts are numbered as they are put.
pub(crate) struct PartsInOrder {
    store: EskerStore,
    location: Path,
    id: MultipartId,
    count: usize,
}

impl PartsInOrder {
    pub(crate) fn new(store: EskerStore, location: Path, id: MultipartId) -> Self {
        PartsInOrder { store, location, id, count: 0 }
    }
}

impl fmt::Debug for PartsInOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "upload {} of {}, {} parts", self.id, self.location, self.count)
    }
}

#[async_trait]
impl MultipartUpload for PartsInOrder {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (store, location, id) = (self.store.clone(), self.location.clone(), self.id.clone());
        let part = self.count;
        self.count += 1;
        async move { store.put_part(&location, &id, part, data).await.map(drop) }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let part = |part: usize| PartId { content_id: part.to_string() };
        let parts = (0..self.count).map(part).collect();
        self.store.complete_multipart(&self.location, &self.id, parts).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.store.abort_multipart(&self.location, &self.id).await
    }
}
