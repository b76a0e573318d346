//! Errors: what the engine reports, as an `Error` of JavaScript with `code`, `path`, `offset` and `errno`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use esker::{Error, ErrorKind};
use napi::JsTypeError;
use napi::bindgen_prelude::{Env, JsValue, Object};

/// Why a call fails.
pub(crate) struct Failure {
    pub(crate) code: String,
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
        Failure { code: code_of(ErrorKind::Corrupt), problems, ..Failure::invalid(message) }
    }

    /// Makes the error object: a `TypeError` if it is a mistake of the caller.
    pub(crate) fn to_js<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let error = napi::Error::from_reason(self.message.as_str());
        let mut object = if self.code == code_of(ErrorKind::Invalid) {
            JsTypeError::from(error).into_unknown(*env).coerce_to_object()?
        } else {
            env.create_error(error)?
        };
        object.set("code", self.code.as_str())?;
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
            code: code_of(error.kind()),
            message: error.to_string(),
            path: error.path().map(|path| path.display().to_string()),
            offset: error.offset(),
            errno: error.errno(),
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
fn code_of(kind: ErrorKind) -> String {
    if kind == ErrorKind::AlreadyExists {
        return "ESKER_EXISTS".to_owned();
    }
    let mut code = "ESKER".to_owned();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() {
            code.push('_');
        }
        code.push(letter.to_ascii_uppercase());
    }
    code
}
