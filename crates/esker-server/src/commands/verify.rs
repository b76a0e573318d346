//! `ES.VERIFY`: whether what is stored makes sense.
//!
//! ```text
//!   the engine's files    --> Store::check
//!   databases  r<number>  --> types::verify
//!   rows       ob.<name>  --> codec
//!   replication  es.      --> records
//!   other keyspaces       --> any bytes
//! ```
//!
//! verify.1. What is not checked as a whole is named in the report.

use std::ops::ControlFlow;

use crate::base::fail::Done;
use crate::replication::{self, NOTHING, RECORDS};
use crate::run::server::Server;
use crate::store::{Order, Reads, Result, Space, Span};
use crate::types::rows;
use crate::types::{self, Database};

/// Maximum number of problems of a keyspace or database in a report.
pub const PROBLEMS_MAX: usize = 1000;
/// What a line of the report begins with that tells no problem (verify.1).
pub const PASSED_OVER: &str = "passed over: ";

/// What is wrong with an entry, if anything is.
type Check = fn(&[u8], &[u8]) -> Option<&'static str>;

/// What is wrong with all that a server stores, and what was passed over.
///
/// # Errors
/// The store's.
pub fn verify(server: &Server) -> Done<Vec<String>> {
    let store = &server.store;
    let mut report = store.check()?;
    // Databases that were not used since the start are opened here, and none are made.
    for number in 0..server.databases_max() {
        let [main, ..] = Database::names(number);
        if store.find_space(&main)?.is_some() {
            let data = server.database(number)?;
            report.extend(types::verify(&*store.snapshot(), &data)?);
        }
    }
    for name in store.spaces()? {
        let Some(check) = check_of(&name) else { continue };
        let Some(space) = store.find_space(&name)? else { continue };
        match entries(&*store.snapshot(), &space, check) {
            Ok(problems) => report.extend(problems),
            // It was dropped meanwhile.
            Err(_) if store.find_space(&name)?.is_none() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(report)
}

/// How entries of a keyspace are checked; none if any are right.
fn check_of(name: &str) -> Option<Check> {
    match name {
        RECORDS => Some(replication::problem),
        NOTHING => Some(|_, _| Some("nothing belongs here")),
        _ if name.starts_with(rows::PREFIX) => Some(rows::codec::problem),
        _ => None,
    }
}

fn entries(reads: &dyn Reads, space: &Space, check: Check) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    reads.range(space, Span::ALL, Order::Up, &mut |key, value| {
        if let Some(problem) = check(key, value) {
            problems.push(format!("keyspace {}, {}: {problem}", space.name(), key.escape_ascii()));
        }
        match problems.len() < PROBLEMS_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    if problems.len() >= PROBLEMS_MAX {
        problems.push(format!("{PASSED_OVER}what follows in the keyspace {}", space.name()));
    }
    Ok(problems)
}
