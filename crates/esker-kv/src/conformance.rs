//! Tests of what [`crate::kv`] promises, for any store: see [`conformance()`].

mod concurrent;
mod model;
mod reads;
mod spaces;
mod transactions;

use std::fmt::Debug;

use bytes::Bytes;

use crate::page::{Query, collect};
use crate::{Entry, Kv, Reads, Result, Space, Span, transact};

/// A test: its name and what it does.
type Check = (&'static str, fn(&Case<'_>) -> Result<(), String>);

/// The tests that failed.
#[derive(Debug, thiserror::Error)]
#[error("{} of {run} tests of the store failed:\n{}", .failed.len(), .failed.join("\n"))]
pub struct Failures {
    /// Number of tests run.
    pub run: usize,
    /// The name of each test that failed, and what it saw.
    pub failed: Vec<String>,
}

/// Tests a store. Makes and drops spaces whose names begin with `conformance`, and leaves others alone.
/// Returns the number of tests. Takes from a second for a local store to a minute for one over a network.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let kv = esker_kv::local::Local::new(esker::Db::in_memory()?);
/// esker_kv::conformance(&kv)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The tests that failed.
pub fn conformance(kv: &dyn Kv) -> Result<usize, Failures> {
    let checks: Vec<&Check> =
        [reads::CHECKS, spaces::CHECKS, transactions::CHECKS, concurrent::CHECKS, model::CHECKS]
            .into_iter()
            .flatten()
            .collect();
    let mut failed = Vec::new();
    for (name, check) in &checks {
        let done = Case::new(kv, name).map_err(|error| error.to_string()).and_then(|case| {
            let done = check(&case);
            done.and(kv.drop_space(case.space.name()).map_err(|error| format!("drop_space: {error}")))
        });
        if let Err(what) = done {
            failed.push(format!("{name}: {what}"));
        }
    }
    if failed.is_empty() { Ok(checks.len()) } else { Err(Failures { run: checks.len(), failed }) }
}

/// What a test works with.
struct Case<'a> {
    kv: &'a dyn Kv,
    /// An empty space of its own.
    space: Space,
}

impl<'a> Case<'a> {
    fn new(kv: &'a dyn Kv, name: &str) -> Result<Self> {
        let name = format!("conformance-{name}");
        kv.drop_space(&name)?;
        Ok(Case { kv, space: kv.space(&name)? })
    }

    /// Sets keys in one transaction.
    fn put(&self, entries: &[(&[u8], &[u8])]) -> Result<(), String> {
        let done = transact(self.kv, |transaction| {
            entries.iter().try_for_each(|(key, value)| transaction.put(&self.space, key, value))
        });
        done.map_err(|error| format!("put: {error}"))
    }

    /// Returns the entries of the space.
    fn all(&self, reads: &dyn Reads) -> Result<Vec<Entry>, String> {
        said("page", collect(reads, &self.space, Query::new(Span::ALL)))
    }
}

/// Adds the name of a call to its error.
fn said<T>(call: &str, done: Result<T>) -> Result<T, String> {
    done.map_err(|error| format!("{call}: {error}"))
}

/// Fails if two values differ.
fn same<T: PartialEq<U> + Debug, U: Debug>(what: &str, is: T, expected: U) -> Result<(), String> {
    if is == expected { Ok(()) } else { Err(format!("{what}: {is:?} instead of {expected:?}")) }
}

/// Fails if a condition does not hold.
fn holds(what: &str, is: bool) -> Result<(), String> {
    if is { Ok(()) } else { Err(what.to_owned()) }
}

fn entry(key: &[u8], value: &[u8]) -> Entry {
    (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))
}
