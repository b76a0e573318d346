//! Backups of Esker databases in S3-compatible object storage.
//!
//! ```no_run
//! use esker::backup::Backup;
//! use esker::env::Env;
//! use esker_backup_s3::S3;
//!
//! // AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT, ...
//! let store = S3::from_env("s3://bucket/backups/of-users")?;
//! let mut backup = Backup::open_store(Env::real(), store)?;
//! let db = esker::Db::open("data")?;
//! backup.create(&db)?;
//! backup.prune(14)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The engine is synchronous. [`S3`] has a small tokio runtime of its own for the requests, so its methods
//! must not be called from a task of another runtime.
//!
//! The server must support conditional puts (`If-None-Match: *`). Backups are refused on a server that
//! ignores them.

#[cfg(test)]
mod tests;
mod upload;

use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use esker::backup::{BackupStore, Listed, Upload};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    ClientConfigKey, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
};
use tokio::runtime::{Builder, Runtime};

use self::upload::S3Upload;

/// Threads of the runtime.
const THREADS: usize = 2;
/// How often a request is repeated, and for how long.
const RETRIES_MAX: usize = 8;
const RETRY_SECONDS: u64 = 180;
/// How long a request may take if `AWS_TIMEOUT` is not set. Parts of an upload share the connection.
const TIMEOUT: &str = "120 seconds";

/// A bucket, or the objects below a prefix in it.
#[derive(Debug)]
pub struct S3 {
    url: String,
    prefix: Path,
    requests: Arc<Requests>,
}

/// The client, and the threads that it runs on.
#[derive(Debug)]
struct Requests {
    client: AmazonS3,
    runtime: Threads,
}

/// The runtime. It can be dropped in a task of another runtime, as a server that ends does.
#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Deref for Threads {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl S3 {
    /// Opens `s3://bucket/prefix` with the settings in the variables `AWS_...` of the process, as
    /// [`AmazonS3Builder::from_env`] reads them. Sends no request.
    ///
    /// # Errors
    /// `InvalidInput` if the URL or a setting is not valid.
    pub fn from_env(url: &str) -> io::Result<S3> {
        let settings = AmazonS3Builder::from_env();
        let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
        match std::env::var_os("AWS_TIMEOUT") {
            None => Self::with(settings.with_config(timeout, TIMEOUT), url),
            Some(_) => Self::with(settings, url),
        }
    }

    /// Opens `s3://bucket/prefix` with these settings. The bucket is that of the URL. Requests are repeated a
    /// few times.
    ///
    /// # Errors
    /// Those of [`from_env`](Self::from_env).
    pub fn with(settings: AmazonS3Builder, url: &str) -> io::Result<S3> {
        let invalid = |why: &dyn std::fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{url}: {why}"))
        };
        let name = url.strip_prefix("s3://").unwrap_or_default().trim_end_matches('/');
        let (bucket, prefix) = name.split_once('/').unwrap_or((name, ""));
        if bucket.is_empty() {
            return Err(invalid(&"name a bucket: s3://BUCKET/PREFIX"));
        }
        let prefix = Path::parse(prefix).map_err(|e| invalid(&e))?;
        let retry_timeout = Duration::from_secs(RETRY_SECONDS);
        let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout, ..RetryConfig::default() };
        let client = settings.with_bucket_name(bucket).with_retry(retry).build().map_err(|e| invalid(&e))?;
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(THREADS).thread_name("esker-s3").enable_all().build()?;
        let requests = Arc::new(Requests { client, runtime: Threads(Some(runtime)) });
        Ok(S3 { url: format!("s3://{name}"), prefix, requests })
    }

    fn path(&self, name: &str) -> Path {
        name.split('/')
            .filter(|part| !part.is_empty())
            .fold(self.prefix.clone(), |path, part| path.join(part))
    }

    fn put_as(&self, name: &str, bytes: Vec<u8>, mode: PutMode) -> io::Result<()> {
        let Requests { client, runtime } = &*self.requests;
        let options = PutOptions { mode, ..PutOptions::default() };
        let path = self.path(name);
        let put = client.put_opts(&path, PutPayload::from(bytes), options);
        runtime.block_on(put).map(drop).map_err(failed)
    }
}

impl BackupStore for S3 {
    fn url(&self) -> &str {
        &self.url
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Listed>> {
        let Requests { client, runtime } = &*self.requests;
        let dir = self.path(dir);
        let found = runtime.block_on(client.list_with_delimiter(Some(&dir))).map_err(failed)?;
        let name = |path: &Path| path.filename().map(str::to_owned);
        let dirs = found.common_prefixes.iter().filter_map(name).map(|name| Listed { name, size: None });
        let objects = found
            .objects
            .iter()
            .filter_map(|object| Some(Listed { name: name(&object.location)?, size: Some(object.size) }));
        Ok(dirs.chain(objects).collect())
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> io::Result<Vec<u8>> {
        let Requests { client, runtime } = &*self.requests;
        let path = self.path(name);
        let Some(range) = range else {
            let read = async { client.get(&path).await?.bytes().await };
            return runtime.block_on(read).map(Vec::from).map_err(failed);
        };
        let bytes = runtime.block_on(client.get_range(&path, range.clone())).map_err(failed)?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes.into())
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        self.put_as(name, bytes, PutMode::Overwrite)
    }

    fn put_new(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        self.put_as(name, bytes, PutMode::Create)
    }

    fn upload(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        let Requests { client, runtime } = &*self.requests;
        let path = self.path(name);
        let id = runtime.block_on(client.create_multipart(&path)).map_err(failed)?;
        Ok(Box::new(S3Upload::new(self.requests.clone(), path, id)))
    }

    fn abort(&self, name: &str, upload: &str) -> io::Result<()> {
        let Requests { client, runtime } = &*self.requests;
        let (path, upload) = (self.path(name), upload.to_owned());
        match runtime.block_on(client.abort_multipart(&path, &upload)).map_err(failed) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let Requests { client, runtime } = &*self.requests;
        match runtime.block_on(client.delete(&self.path(name))).map_err(failed) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

/// Returns the error of a request with the kind that [`BackupStore`] documents.
fn failed(error: object_store::Error) -> io::Error {
    use object_store::Error as E;
    let kind = match &error {
        E::NotFound { .. } => io::ErrorKind::NotFound,
        E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => {
            io::ErrorKind::AlreadyExists
        }
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        E::NotSupported { .. } | E::NotImplemented { .. } => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
