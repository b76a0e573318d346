//! `Db.transact`: runs a function in a transaction until it commits without a conflict.
//!
//! The engine repeats the transaction, detached from the interpreter, and lends it to each attempt. The
//! function gets an object that owns the transaction until the function returns.

use esker::{Error, Isolation, TransactionOptions};
use pyo3::prelude::*;

use crate::error::raise;
use crate::fork::Process;
use crate::source::Cell;
use crate::transaction::Transaction;

/// How to run it.
pub(crate) struct Attempts<'a> {
    pub(crate) db: &'a esker::Db,
    pub(crate) options: TransactionOptions,
    pub(crate) process: Process,
}

/// The error of the engine or of the function.
enum Failure {
    Engine(Error),
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Engine(error)
    }
}

/// Runs the function, and returns its result.
pub(crate) fn transact(
    py: Python<'_>,
    attempts: &Attempts<'_>,
    body: &Bound<'_, PyAny>,
) -> PyResult<Py<PyAny>> {
    let body = body.clone().unbind();
    let done =
        py.detach(|| attempts.options.run(|lent| Python::attach(|py| attempt(py, attempts, lent, &body))));
    match done {
        Ok(committed) => Ok(committed.value),
        Err(Failure::Engine(error)) => Err(raise(py, &error)),
        Err(Failure::Python(error)) => Err(error),
    }
}

fn attempt(
    py: Python<'_>,
    attempts: &Attempts<'_>,
    lent: &mut esker::Transaction,
    body: &Py<PyAny>,
) -> Result<Py<PyAny>, Failure> {
    // The place of the transaction while the function has it.
    let stand_in = attempts.db.transaction().isolation(Isolation::Snapshot).begin();
    let cell = Cell::new(std::mem::replace(lent, stand_in), true);
    let object = Transaction::managed(attempts.db.clone(), cell.clone(), attempts.process);
    let done = object.into_pyobject(py).and_then(|object| body.call1(py, (object,)));
    // Another thread may be in an operation of the transaction, which it ends detached.
    *lent = py.detach(|| cell.take()).expect("only this function ends a managed transaction");
    done.map_err(Failure::Python)
}
