//! What errors of the server and of connections mean for a caller.

use tokio_postgres::error::SqlState;

use super::Dialect;
use crate::Error;

/// Codes of transactions that are to run again.
const CONFLICTS: [&str; 4] = ["40001", "40P01", "55P03", "YB001"];

/// Where a statement stands in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No `COMMIT` was sent.
    Open,
    /// A `COMMIT` was sent behind the statement. If the server answers the statement with an error, it takes
    /// the `COMMIT` for a rollback.
    CommitSent,
    /// The statement is the `COMMIT`.
    Commit,
}

/// Returns the error of a statement.
pub(super) fn of(error: &tokio_postgres::Error, dialect: Dialect, stage: Stage) -> Error {
    let Some(db) = error.as_db_error() else {
        return lost(error.to_string() + &cause(error), stage);
    };
    of_code(db.code(), db.message(), dialect, stage)
}

fn of_code(code: &SqlState, message: &str, dialect: Dialect, stage: Stage) -> Error {
    let code = code.code();
    let what = format!("{message} ({code})");
    match code {
        code if CONFLICTS.contains(&code) => Error::Conflict,
        // Older releases have no code of their own for conflicts. For a `COMMIT` it may mean anything.
        "XX000" if dialect == Dialect::Yugabyte => match stage {
            Stage::Commit => Error::OutcomeUnknown(what),
            Stage::Open | Stage::CommitSent => Error::Conflict,
        },
        // CockroachDB does not know whether the statement was done.
        "40003" => lost(what, stage),
        "57014" if stage == Stage::Commit => Error::OutcomeUnknown(what),
        code if code.starts_with("08") || code.starts_with("57P0") => lost(what, stage),
        // Out of connections or memory, a standby, a query that was cancelled.
        "53200" | "53300" | "25006" | "57014" => Error::Unavailable(what),
        "25P03" | "72000" => Error::SnapshotTooOld(what),
        "54000" => Error::TooLarge(what),
        _ => Error::other(what),
    }
}

/// The connection is lost, or the server is (postgres.2).
pub(super) fn lost(what: String, stage: Stage) -> Error {
    match stage {
        Stage::Open => Error::Unavailable(what),
        Stage::CommitSent | Stage::Commit => Error::OutcomeUnknown(what),
    }
}

/// Returns the error of an attempt to connect.
pub(super) fn of_connect(error: &tokio_postgres::Error) -> Error {
    use std::error::Error as _;
    let is_io = error.source().is_some_and(|source| source.is::<std::io::Error>());
    match error.as_db_error() {
        Some(db) => of_code(db.code(), db.message(), Dialect::Postgres, Stage::Open),
        None if is_io || error.is_closed() => Error::Unavailable(error.to_string() + &cause(error)),
        None => Error::other(error.to_string() + &cause(error)),
    }
}

fn cause(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    error.source().map(|source| format!(": {source}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code, database, stage, and the error: conflict, unavailable, unknown outcome, other.
    const TABLE: &str = "
        40001 postgres  open c   40001 postgres  sent c   40001 postgres  commit c
        40P01 postgres  open c   55P03 postgres  open c   YB001 yugabyte  commit c
        XX000 postgres  open o   XX000 yugabyte  open c   XX000 yugabyte  commit ?
        08006 postgres  open u   08006 postgres  sent ?   08006 postgres  commit ?
        57P01 postgres  open u   57P01 postgres  sent ?   57P03 postgres  commit ?
        57014 postgres  open u   57014 postgres  sent u   57014 postgres  commit ?
        40003 cockroach open u   40003 cockroach sent ?   40003 cockroach commit ?
        25006 postgres  sent u   53300 postgres  open u   53100 postgres  sent o";

    #[test]
    fn codes_of_the_server_say_what_to_do() {
        let words: Vec<_> = TABLE.split_whitespace().collect();
        for row in words.chunks(4) {
            let dialect = match row[1] {
                "yugabyte" => Dialect::Yugabyte,
                "cockroach" => Dialect::Cockroach,
                _ => Dialect::Postgres,
            };
            let stage = match row[2] {
                "open" => Stage::Open,
                "sent" => Stage::CommitSent,
                _ => Stage::Commit,
            };
            let is = match of_code(&SqlState::from_code(row[0]), "", dialect, stage) {
                Error::Conflict => "c",
                Error::Unavailable(_) => "u",
                Error::OutcomeUnknown(_) => "?",
                _ => "o",
            };
            assert_eq!(is, row[3], "{row:?}");
        }
    }
}
