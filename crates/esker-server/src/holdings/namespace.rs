//! Namespaces of keys: keyspaces and numbered databases.

use crate::store::Space;

/// A keyspace, or the keys of a numbered database.
#[derive(Clone)]
pub struct Namespace {
    /// Map that holds the keys.
    pub space: Space,
    /// Number of the database, if it is one. Values in a database are main records, and keys expire.
    pub database: Option<usize>,
}

impl Namespace {
    /// Returns the namespace of a keyspace of plain keys.
    pub fn keyspace(space: Space) -> Self {
        Namespace { space, database: None }
    }

    /// Returns a name that is unique among namespaces.
    pub fn name(&self) -> String {
        match self.database {
            Some(number) => database_name(number),
            None => self.space.name().to_owned(),
        }
    }
}

/// Returns the name of the namespace of a database.
pub fn database_name(number: usize) -> String {
    format!("r{number}")
}
