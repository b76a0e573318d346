//! A store whose process is killed at the n-th change: before the request, or after its answer.

use std::io;
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::backup::{BackupStore, Listed, Upload};
use esker_backup_s3::S3;

pub const URL: &str = "s3://bucket/of/tests";

#[derive(Debug)]
pub struct Dying {
    store: S3,
    death: Arc<Death>,
}

#[derive(Debug)]
struct Death {
    /// Twice the number of the change, plus one to die after it.
    at: Option<u64>,
    /// Relaxed: independent of other memory.
    moments: AtomicU64,
}

impl Death {
    fn moment(&self) {
        if Some(self.moments.fetch_add(1, Ordering::Relaxed)) == self.at {
            let id = std::process::id().to_string();
            Command::new("kill").args(["-9", &id]).status().unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
    }

    fn around<T>(&self, change: impl FnOnce() -> T) -> T {
        self.moment();
        let done = change();
        self.moment();
        done
    }
}

impl Dying {
    pub fn new(at: Option<u64>) -> Dying {
        let death = Arc::new(Death { at, moments: AtomicU64::new(0) });
        Dying { store: S3::from_env(URL).unwrap(), death }
    }
}

impl BackupStore for Dying {
    fn url(&self) -> &str {
        self.store.url()
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Listed>> {
        self.store.list(dir)
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> io::Result<Vec<u8>> {
        self.store.read(name, range)
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        self.death.around(|| self.store.put(name, bytes))
    }

    fn put_new(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        self.death.around(|| self.store.put_new(name, bytes))
    }

    fn upload(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        let upload = self.store.upload(name)?;
        Ok(Box::new(DyingUpload { upload, death: self.death.clone() }))
    }

    fn abort(&self, name: &str, upload: &str) -> io::Result<()> {
        self.death.around(|| self.store.abort(name, upload))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.death.around(|| self.store.delete(name))
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(2)
    }
}

#[derive(Debug)]
struct DyingUpload {
    upload: Box<dyn Upload>,
    death: Arc<Death>,
}

impl Upload for DyingUpload {
    fn id(&self) -> &str {
        self.upload.id()
    }

    fn write(&mut self, part: Vec<u8>) -> io::Result<()> {
        self.death.around(|| self.upload.write(part))
    }

    fn complete(&mut self) -> io::Result<()> {
        self.death.around(|| self.upload.complete())
    }
}
