//! Opening the database and the keyspace that the command line names.

use std::path::PathBuf;

use esker::{Db, Keyspace};

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::text::shown;

/// An open database, and how the user called it.
pub(crate) struct Database {
    pub(crate) db: Db,
    directory: PathBuf,
}

impl Database {
    /// Opens a database that exists.
    pub(crate) fn open(args: &Args) -> Result<Self> {
        Self::open_with(args, false)
    }

    /// Opens a database, creating it where there is none.
    pub(crate) fn open_or_create(args: &Args) -> Result<Self> {
        Self::open_with(args, true)
    }

    fn open_with(args: &Args, create: bool) -> Result<Self> {
        let directory = directory(args)?;
        let builder = Db::builder().create_if_missing(create).durability(args.durability.into());
        match builder.open(&directory) {
            Ok(db) => Ok(Database { db, directory }),
            Err(error) => Err(Failure::Engine(directory, error)),
        }
    }

    /// The keyspace, which has to exist.
    pub(crate) fn keyspace(&self, args: &Args) -> Result<Keyspace> {
        self.db.open_keyspace(&args.keyspace).map_err(|error| match error {
            esker::Error::KeyspaceNotFound(name) => Failure::message(format!(
                "no keyspace `{}` in {}\n  it has: {}",
                shown(name),
                shown(self.directory.display()),
                shown(self.db.keyspaces().unwrap_or_default().join(", ")),
            )),
            error => self.failure(error),
        })
    }

    /// The keyspace, created where there is none.
    pub(crate) fn keyspace_or_create(&self, args: &Args) -> Result<Keyspace> {
        self.db.keyspace(&args.keyspace).map_err(|error| self.failure(error))
    }

    /// An error of the engine, with the name by which the user knows the database.
    pub(crate) fn failure(&self, error: esker::Error) -> Failure {
        Failure::Engine(self.directory.clone(), error)
    }

    /// Closes the database: what a command reports as done is then on disk.
    pub(crate) fn close(self) -> Result<()> {
        self.db.close().map_err(|error| Failure::Engine(self.directory, error))
    }
}

/// The directory of the database.
pub(crate) fn directory(args: &Args) -> Result<PathBuf> {
    args.db.clone().ok_or_else(|| {
        Failure::message(
            "which database? Name its directory with --db DIR, or set ESKER_DB in the environment",
        )
    })
}
