//! Where keys lie.

use crate::store::Space;

/// A keyspace, or the keys of a numbered database.
#[derive(Clone)]
pub struct Place {
    /// The map that holds the keys.
    pub space: Space,
    /// The database's number, if it is one. Its values are main records, and keys expire.
    pub database: Option<usize>,
}

impl Place {
    /// A keyspace of plain keys.
    pub fn keyspace(space: Space) -> Self {
        Place { space, database: None }
    }

    /// The name that tells it from all others.
    pub fn name(&self) -> String {
        match self.database {
            Some(number) => database_name(number),
            None => self.space.name().to_owned(),
        }
    }
}

/// The name of the place of a database.
pub fn database_name(number: usize) -> String {
    format!("r{number}")
}
