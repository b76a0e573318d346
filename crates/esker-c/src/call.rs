//! How a call runs: its failures become a status and an error, panics included.

use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use esker::Error;

use crate::error::esker_error;
use crate::status::esker_status;

// Where a call leaves its error, if the caller wants it. `cargo xtask header` replaces its name.
pub(crate) type ErrorPlace<'a> = Option<&'a mut MaybeUninit<Option<Box<esker_error>>>>;

/// Why a call does not return `ESKER_OK`.
pub(crate) enum Failure {
    /// An error of the engine.
    Engine(Error),
    /// A status without an error.
    Status(esker_status),
}

impl Failure {
    pub(crate) fn invalid(text: impl Into<String>) -> Failure {
        Failure::Engine(Error::Invalid(text.into()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Engine(error)
    }
}

/// Runs the body of a call.
pub(crate) fn call(error: ErrorPlace<'_>, body: impl FnOnce() -> Result<(), Failure>) -> esker_status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return esker_status::ESKER_OK,
        Ok(Err(Failure::Status(status))) => return status,
        Ok(Err(Failure::Engine(failure))) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Error::Panicked(format!("a call panicked: {}", text.unwrap_or_default()))
        }
    };
    let status = esker_status::of(&failure);
    set(error, Some(Box::new(esker_error::new(failure))));
    status
}

/// Same as [`call`] for calls that cannot report: a panic is swallowed.
pub(crate) fn quietly(body: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(body));
}

/// Leaves a result in a place of the caller, if there is one.
pub(crate) fn set<T>(place: Option<&mut MaybeUninit<T>>, result: T) {
    if let Some(place) = place {
        place.write(result);
    }
}

/// Returns what an argument points to, unless it is NULL.
pub(crate) fn given<T>(argument: Option<T>, name: &str) -> Result<T, Failure> {
    argument.ok_or_else(|| Failure::invalid(format!("argument `{name}` is NULL")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status() {
        assert_eq!(call(None, || panic!("a text")), esker_status::ESKER_PANICKED);
        assert_eq!(call(None, || panic!("a text of {}", 2)), esker_status::ESKER_PANICKED);
        quietly(|| panic!("a text"));
        assert_eq!(call(None, || Ok(())), esker_status::ESKER_OK);
    }
}
