//! Errors: what the engine reports, as an `Error` of JavaScript with `code`, `path`, `offset` and `errno`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use esker::Error;
use napi::bindgen_prelude::{Env, JsValue, Object};

/// Why a call fails.
pub(crate) struct Failure {
    pub(crate) code: &'static str,
    message: String,
    path: Option<String>,
    offset: Option<u64>,
    errno: Option<i32>,
    /// What a check has found.
    problems: Vec<String>,
}

impl Failure {
    /// A mistake of the caller.
    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Error::Invalid(message.into()).into()
    }

    /// The findings of a check, of which there is one at least.
    pub(crate) fn unsound(problems: Vec<String>) -> Failure {
        let first = problems.first().cloned().unwrap_or_default();
        let message = format!("the database is damaged ({} problems): {first}", problems.len());
        Failure { code: "ESKER_CORRUPT", problems, ..Failure::invalid(message) }
    }

    /// Makes the error object.
    pub(crate) fn to_js<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let mut object = env.create_error(napi::Error::from_reason(self.message.as_str()))?;
        object.set("code", self.code)?;
        if let Some(path) = &self.path {
            object.set("path", path.as_str())?;
        }
        if let Some(offset) = self.offset {
            object.set("offset", offset as f64)?;
        }
        if let Some(errno) = self.errno {
            object.set("errno", errno)?;
        }
        if !self.problems.is_empty() {
            object.set("problems", self.problems.clone())?;
        }
        Ok(object)
    }

    /// The error with which a call fails at once.
    pub(crate) fn thrown(&self, env: &Env) -> napi::Error {
        match self.to_js(env) {
            Ok(object) => napi::Error::from(object.to_unknown()),
            Err(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            code: code_of(&error),
            message: error.to_string(),
            path: path_of(&error).map(|path| path.display().to_string()),
            offset: match &error {
                Error::Corrupt { offset, .. } => Some(*offset),
                _ => None,
            },
            errno: match &error {
                Error::Io { source, .. } => source.raw_os_error(),
                _ => None,
            },
            problems: Vec::new(),
        }
    }
}

/// Runs a body. A panic becomes an error.
pub(crate) fn caught<R>(body: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Error::Panicked(format!("a call panicked: {}", text.unwrap_or_default())).into())
    })
}

/// The codes are the statuses of the C API.
fn code_of(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } | Error::Behind { .. } => "ESKER_IO",
        Error::NoSpace { .. } => "ESKER_NO_SPACE",
        Error::Corrupt { .. } => "ESKER_CORRUPT",
        Error::UnsupportedVersion { .. } | Error::UnknownChange(_) => "ESKER_UNSUPPORTED_VERSION",
        Error::Encryption { .. } => "ESKER_ENCRYPTION",
        Error::NotFound(_) | Error::UnfinishedRepair(_) => "ESKER_NO_DATABASE",
        Error::Locked { .. } => "ESKER_LOCKED",
        Error::ReadOnly(_) => "ESKER_READ_ONLY",
        Error::Conflict { .. } => "ESKER_CONFLICT",
        Error::Deadlock(_) => "ESKER_DEADLOCK",
        Error::LockTimeout { .. } => "ESKER_LOCK_TIMEOUT",
        Error::Poisoned(_) => "ESKER_POISONED",
        Error::KeyTooLong { .. } | Error::ValueTooLong { .. } => "ESKER_TOO_LONG",
        Error::KeyspaceNotFound(_) => "ESKER_KEYSPACE_NOT_FOUND",
        Error::KeyspaceExists(_) => "ESKER_KEYSPACE_EXISTS",
        Error::Merge { .. } | Error::MergeOperatorMissing { .. } | Error::NoMergeOperator { .. } => {
            "ESKER_MERGE"
        }
        Error::FeedTruncated { .. } | Error::HistoryGone { .. } => "ESKER_GONE",
        Error::NoFeed => "ESKER_NO_FEED",
        Error::FeedAhead { .. } => "ESKER_FEED_AHEAD",
        Error::AlreadyExists(_) => "ESKER_EXISTS",
        Error::Panicked(_) => "ESKER_PANICKED",
        Error::Forked => "ESKER_FORKED",
        Error::Closed => "ESKER_CLOSED",
        Error::Invalid(_)
        | Error::ForeignHandle { .. }
        | Error::SavepointGone
        | Error::OutOfOrder(_)
        | Error::NoBackup(_)
        | Error::OtherHistory(_)
        | Error::UnfinishedLoad(_) => "ESKER_INVALID",
        _ => "ESKER_OTHER",
    }
}

/// The file or directory that the error is about.
fn path_of(error: &Error) -> Option<&Path> {
    match error {
        Error::Io { path, .. }
        | Error::NoSpace { path, .. }
        | Error::Corrupt { path, .. }
        | Error::UnsupportedVersion { path, .. }
        | Error::Encryption { path, .. }
        | Error::Locked { path, .. }
        | Error::Behind { path, .. }
        | Error::NotFound(path)
        | Error::UnfinishedRepair(path)
        | Error::ReadOnly(path)
        | Error::AlreadyExists(path) => Some(path),
        Error::Poisoned(cause) => path_of(cause),
        _ => None,
    }
}
