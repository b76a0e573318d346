//! `EskerStore`: the trait's calls, each on a thread that may block.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use esker::Db;
use futures::stream::{BoxStream, StreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
};

use crate::error::{Result, blocking};
use crate::parts::{Parts, Unfinished};
use crate::parts_in_order::PartsInOrder;
use crate::{listing, read};

/// Deletions of a stream that run at a time. They share syncs.
const DELETIONS: usize = 16;

/// An object store in a database. Clones share it.
#[derive(Clone)]
pub struct EskerStore {
    pub(crate) parts: Arc<Parts>,
}

impl EskerStore {
    /// Opens the store `name`, or creates it. A database can have several.
    ///
    /// # Errors
    /// [`Generic`](object_store::Error::Generic) with the database's error.
    pub fn open(db: &Db, name: &str) -> Result<Self> {
        let parts = Parts::open(db, name)?;
        Ok(EskerStore { parts: Arc::new(parts) })
    }

    /// Returns the uploads that are neither completed nor aborted. Their parts take space until they are.
    ///
    /// # Errors
    /// [`Generic`](object_store::Error::Generic) with the database's error.
    pub async fn unfinished_uploads(&self) -> Result<Vec<Unfinished>> {
        let parts = self.parts.clone();
        blocking(move || parts.unfinished()).await
    }
}

impl fmt::Display for EskerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Esker({} in {})", self.parts.name, self.parts.db.path().display())
    }
}

impl fmt::Debug for EskerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[async_trait]
impl ObjectStore for EskerStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let (parts, location) = (self.parts.clone(), location.clone());
        blocking(move || parts.put(&location, &payload, &opts)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let id = self.create_multipart_opts(location, opts).await?;
        Ok(Box::new(PartsInOrder::new(self.clone(), location.clone(), id)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (parts, location) = (self.parts.clone(), location.clone());
        let found = blocking(move || read::find(&parts, location, &options)).await?;
        Ok(found.into_result(self.parts.clone()))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let parts = self.parts.clone();
        let delete = move |location: Result<Path>| {
            let parts = parts.clone();
            async move {
                let location = location?;
                blocking(move || parts.delete(&location).map(|()| location)).await
            }
        };
        locations.map(delete).buffered(DELETIONS).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        listing::stream(self.parts.clone(), prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        listing::stream(self.parts.clone(), prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (parts, prefix) = (self.parts.clone(), prefix.cloned().unwrap_or_default());
        blocking(move || listing::level(&parts, &prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (parts, from, to) = (self.parts.clone(), from.clone(), to.clone());
        blocking(move || parts.copy(&from, &to, options.mode)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let (parts, from, to) = (self.parts.clone(), from.clone(), to.clone());
        blocking(move || parts.rename(&from, &to, options.target_mode)).await
    }
}

#[async_trait]
impl MultipartStore for EskerStore {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.create_multipart_opts(path, PutMultipartOptions::default()).await
    }

    async fn create_multipart_opts(&self, path: &Path, opts: PutMultipartOptions) -> Result<MultipartId> {
        let (parts, path) = (self.parts.clone(), path.clone());
        blocking(move || parts.begin_upload(&path, &opts.attributes)).await
    }

    async fn put_part(
        &self,
        _: &Path,
        id: &MultipartId,
        part_idx: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        let (parts, id) = (self.parts.clone(), id.clone());
        blocking(move || parts.put_part(&id, part_idx, &data)).await
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let (store, path, id) = (self.parts.clone(), path.clone(), id.clone());
        blocking(move || store.complete_upload(&path, &id, parts.len())).await
    }

    async fn abort_multipart(&self, _: &Path, id: &MultipartId) -> Result<()> {
        let (parts, id) = (self.parts.clone(), id.clone());
        blocking(move || parts.abort_upload(&id)).await
    }
}
