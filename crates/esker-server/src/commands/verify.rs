//! `ES.VERIFY`: checks that the stored data is consistent.
//!
//! ```text
//!   the engine's files    --> Store::check
//!   databases  r<number>  --> types::verify
//!   rows       ob.<name>  --> codec
//!   replication  es.      --> records
//!   other keyspaces       --> any bytes
//! ```
//!
//! The report names everything that was not fully checked.

use std::ops::ControlFlow;

use crate::replication::{self, NOTHING, RECORDS};
use crate::resp::fail::Done;
#[cfg(feature = "lua")]
use crate::run::functions;
use crate::run::server::Server;
use crate::store::{Order, Reads, Result, Space, Span};
use crate::types::rows;
use crate::types::verify::{PASSED_OVER, PROBLEMS_MAX};
use crate::types::{self, Database};

/// Returns what is wrong with an entry, if anything is.
type Check = fn(&[u8], &[u8]) -> Option<&'static str>;

/// Checks everything that a server stores. Returns the problems, and what was not checked.
///
/// # Errors
/// Those of the store.
pub fn verify(server: &Server) -> Done<Vec<String>> {
    let store = &server.store;
    let mut report = store.check()?;
    // Databases that were not used since the start are opened here. Missing ones are not created.
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
            // The keyspace was dropped in the meantime.
            Err(_) if store.find_space(&name)?.is_none() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(report)
}

/// Returns the check for the entries of a keyspace, or none if any entry is valid.
fn check_of(name: &str) -> Option<Check> {
    match name {
        RECORDS => Some(replication::problem),
        NOTHING => Some(|_, _| Some("nothing belongs here")),
        #[cfg(feature = "lua")]
        functions::KEYSPACE => Some(functions::problem),
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
