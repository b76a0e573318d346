//! Where backups are: a directory, or object storage.

use std::path::{Path, PathBuf};

use esker::backup::Backup;
use esker::env::Env;

use crate::failure::{Failure, Result};

/// The beginning of the URLs of object storage.
const S3: &str = "s3://";
const FILE: &str = "file://";

/// The place that an argument names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BackupTarget {
    Directory(PathBuf),
    /// The URL of object storage.
    Store(String),
}

impl BackupTarget {
    /// Parses a path, `file:///PATH` or `s3://BUCKET/PREFIX`.
    pub(crate) fn of(argument: &Path) -> Result<BackupTarget> {
        let text = argument.to_string_lossy();
        if text.starts_with(S3) {
            return Ok(BackupTarget::Store(text.into_owned()));
        }
        if let Some(path) = text.strip_prefix(FILE) {
            return match path.starts_with('/') {
                true => Ok(BackupTarget::Directory(path.into())),
                false => Err(Failure::message(format!("{text}: write file:///PATH, with an absolute path"))),
            };
        }
        match text.split_once("://") {
            Some((scheme, _))
                if !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) =>
            {
                let why = "backups are in a directory, or in s3://BUCKET/PREFIX";
                Err(Failure::message(format!("{text}: {why}; a directory of that name is ./{text}")))
            }
            _ => Ok(BackupTarget::Directory(argument.to_owned())),
        }
    }

    /// Opens the backups.
    pub(crate) fn open(&self, env: Env) -> Result<esker::Result<Backup>> {
        match self {
            BackupTarget::Directory(directory) => Ok(Backup::open_in(env, directory)),
            BackupTarget::Store(url) => Ok(Backup::open_store(env, store(url)?)),
        }
    }
}

/// Opens object storage with the settings in the variables `AWS_...`.
#[cfg(feature = "s3")]
pub(crate) fn store(url: &str) -> Result<esker_backup_s3::S3> {
    esker_backup_s3::S3::from_env(url).map_err(|error| Failure::message(error.to_string()))
}

/// Refuses object storage, which this build cannot reach.
#[cfg(not(feature = "s3"))]
pub(crate) fn store(url: &str) -> Result<std::sync::Arc<dyn esker::backup::BackupStore>> {
    Err(Failure::message(format!("{url}: this esker was built without S3: build it with --features s3")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_are_distinguished() {
        let of = |text: &str| BackupTarget::of(Path::new(text)).ok();
        for (text, path) in [("/a", "/a"), ("a b", "a b"), ("./x://y", "./x://y"), ("file:///a/b", "/a/b")] {
            assert_eq!(of(text), Some(BackupTarget::Directory(path.into())), "{text}");
        }
        assert_eq!(of("s3://b/p"), Some(BackupTarget::Store("s3://b/p".to_owned())));
        for text in ["gs://b/p", "file://a", "S3://b/p"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
