//! Options of opening, keyspaces and writes, as JavaScript passes them.

use std::sync::Arc;
use std::time::Duration;

use esker::encryption::MasterKeys;
use esker::{
    Blobs, Builder, Counting, Db, Durability, History, Isolation, KeyspaceOptions, TableCompression,
};
use napi_derive::napi;

use crate::error::Failure;
use crate::registry::Opened;

/// How a database is opened. A number is a count of bytes or milliseconds.
#[napi(object)]
pub struct OpenOptions {
    pub memory: Option<f64>,
    pub durability: Option<String>,
    pub isolation: Option<String>,
    pub create_if_missing: Option<bool>,
    pub error_if_exists: Option<bool>,
    pub read_only: Option<bool>,
    pub compression: Option<bool>,
    pub blobs_from: Option<f64>,
    pub lock_timeout: Option<f64>,
    pub feed_bytes: Option<f64>,
    pub feed_age: Option<f64>,
    pub key_file: Option<String>,
    pub multithreading: Option<bool>,
}

/// A number of bytes or milliseconds that is not negative.
pub(crate) fn whole(number: f64, name: &str) -> Result<u64, Failure> {
    match number {
        0.0.. => Ok(number as u64),
        _ => Err(Failure::invalid(format!("{name} is {number}: pass a number that is not negative"))),
    }
}

/// Milliseconds, rounded up: a part of one is not zero, which would be "at once".
pub(crate) fn milliseconds(number: f64, name: &str) -> Result<Duration, Failure> {
    whole(number, name)?;
    Ok(Duration::from_millis(number.ceil() as u64))
}

pub(crate) fn durability(name: &str) -> Result<Durability, Failure> {
    Ok(match name {
        "sync" => Durability::Sync,
        "buffered" => Durability::Buffered,
        "none" => Durability::None,
        other => {
            let why = format!("{other:?} is no durability: pass \"sync\", \"buffered\" or \"none\"");
            return Err(Failure::invalid(why));
        }
    })
}

pub(crate) fn isolation(name: &str) -> Result<Isolation, Failure> {
    Ok(match name {
        "serializable" => Isolation::Serializable,
        "snapshot" => Isolation::Snapshot,
        "exclusive" => Isolation::Exclusive,
        other => {
            let why =
                format!("{other:?} is no isolation: pass \"serializable\", \"snapshot\" or \"exclusive\"");
            return Err(Failure::invalid(why));
        }
    })
}

impl OpenOptions {
    pub(crate) fn durability(&self) -> Result<Durability, Failure> {
        self.durability.as_deref().map_or(Ok(Durability::Sync), durability)
    }

    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        let mut builder = Db::builder().durability(self.durability()?);
        if let Some(bytes) = self.memory {
            builder = builder.memory(whole(bytes, "memory")?);
        }
        if let Some(name) = &self.isolation {
            builder = builder.isolation(isolation(name)?);
        }
        if let Some(yes) = self.create_if_missing {
            builder = builder.create_if_missing(yes);
        }
        if let Some(yes) = self.error_if_exists {
            builder = builder.error_if_exists(yes);
        }
        if self.compression == Some(false) {
            builder = builder.compression(TableCompression::None);
        }
        if let Some(bytes) = self.blobs_from {
            builder = builder.blobs(blobs(bytes)?);
        }
        if let Some(ms) = self.lock_timeout {
            builder = builder.lock_timeout(milliseconds(ms, "lockTimeout")?);
        }
        if let Some(bytes) = self.feed_bytes {
            let age = milliseconds(self.feed_age.unwrap_or(3_600_000.0), "feed.age")?;
            builder = builder.feed_retention(whole(bytes, "feed.bytes")?, age);
        }
        if let Some(path) = &self.key_file {
            builder = builder.encryption(MasterKeys::from_file(path)?);
        }
        Ok(builder)
    }

    /// Opens the database in a directory, or in memory if there is no path.
    pub(crate) fn open(&self, path: Option<&str>) -> Result<Arc<Opened>, Failure> {
        let builder = self.builder()?;
        let Some(path) = path else { return Ok(Opened::alone(builder.open_in_memory()?)) };
        let open = || match self.read_only {
            Some(true) => Ok(builder.open_read_only(path)?),
            _ => Ok(builder.open(path)?),
        };
        match self.multithreading {
            Some(true) => Opened::together(path, open),
            _ => Ok(Opened::alone(open()?)),
        }
    }
}

fn blobs(bytes: f64) -> Result<Blobs, Failure> {
    Ok(match whole(bytes, "blobsFrom")? {
        0 => Blobs::Never,
        bytes => Blobs::From(usize::try_from(bytes).unwrap_or(usize::MAX)),
    })
}

/// Options of a new keyspace.
#[napi(object)]
pub struct NewKeyspace {
    pub merge_operator: Option<String>,
    pub default_ttl: Option<f64>,
    pub blobs_from: Option<f64>,
    pub bytes_max: Option<f64>,
    pub history: Option<u32>,
    pub counting: Option<bool>,
}

impl NewKeyspace {
    pub(crate) fn options(&self) -> Result<KeyspaceOptions, Failure> {
        let mut options = KeyspaceOptions::new();
        if let Some(name) = &self.merge_operator {
            options = options.merge_operator(name.as_str());
        }
        if let Some(ms) = self.default_ttl {
            options = options.default_ttl(milliseconds(ms, "defaultTtl")?);
        }
        if let Some(bytes) = self.blobs_from {
            options = options.blobs(blobs(bytes)?);
        }
        if let Some(bytes) = self.bytes_max {
            options = options.bytes_max(whole(bytes, "bytesMax")?);
        }
        if let Some(versions) = self.history {
            options = options.history(History::Versions(versions));
        }
        if self.counting == Some(false) {
            options = options.counting(Counting::Lazy);
        }
        Ok(options)
    }
}
