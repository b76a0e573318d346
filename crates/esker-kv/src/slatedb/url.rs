//! The URLs of SlateDB stores.

use std::sync::Arc;
use std::time::Duration;

use ::slatedb::object_store::ObjectStore;
use ::slatedb::object_store::aws::AmazonS3Builder;
use ::slatedb::object_store::local::LocalFileSystem;

use crate::{Error, Result};

/// What a URL says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// The bucket. `None`: a directory of this machine.
    pub bucket: Option<String>,
    /// The path in the bucket, or of the directory.
    pub path: String,
    pub flush: Duration,
    pub timeout: Duration,
}

fn invalid(url: &str, what: &str) -> Error {
    Error::Invalid(format!("{url:?} is no URL of a SlateDB store: {what}"))
}

pub(super) fn parse(url: &str) -> Result<Location> {
    let rest = url.strip_prefix("slatedb://").ok_or_else(|| invalid(url, "it begins with slatedb://"))?;
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (bucket, path) = place.split_once('/').ok_or_else(|| invalid(url, "it has a path"))?;
    let path = path.trim_end_matches('/');
    if path.is_empty() || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(invalid(url, "the path has parts that are not empty, `.` or `..`"));
    }
    let bucket = Some(bucket.to_owned()).filter(|bucket| !bucket.is_empty());
    let flush_ms = if bucket.is_some() { 100 } else { 5 };
    let mut location = Location {
        bucket,
        path: path.to_owned(),
        flush: Duration::from_millis(flush_ms),
        timeout: Duration::from_secs(30),
    };
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let field = match name {
            "flush_ms" => &mut location.flush,
            "timeout_ms" => &mut location.timeout,
            _ => return Err(invalid(url, &format!("there is no parameter {name:?}"))),
        };
        let number = value.parse().ok().filter(|ms| (1..=3_600_000).contains(ms));
        let number = number.ok_or_else(|| invalid(url, &format!("{name} is 1 to 3600000")))?;
        *field = Duration::from_millis(number);
    }
    Ok(location)
}

/// Returns the object store of a location.
pub(super) fn object_store(location: &Location) -> Result<Arc<dyn ObjectStore>> {
    match &location.bucket {
        Some(bucket) => {
            let store = AmazonS3Builder::from_env().with_bucket_name(bucket).build();
            Ok(Arc::new(store.map_err(Error::other)?))
        }
        None => Ok(Arc::new(LocalFileSystem::new().with_fsync(true))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let location = parse("slatedb://bucket/a/b/?flush_ms=20").unwrap();
        assert_eq!((location.bucket.as_deref(), &location.path[..]), (Some("bucket"), "a/b"));
        assert_eq!(location.flush, Duration::from_millis(20));
        let location = parse("slatedb:///var/data?timeout_ms=100").unwrap();
        assert_eq!((location.bucket, &location.path[..]), (None, "var/data"));
        assert_eq!(location.timeout, Duration::from_millis(100));
        for bad in [
            "s3://bucket/a",
            "slatedb://bucket",
            "slatedb://bucket/",
            "slatedb:///",
            "slatedb:///a/../b",
            "slatedb://bucket/a?flush_ms=0",
            "slatedb://bucket/a?flush_ms=x",
            "slatedb://bucket/a?flush=1",
        ] {
            assert!(matches!(parse(bad), Err(Error::Invalid(_))), "{bad}");
        }
    }
}
