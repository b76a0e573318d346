//! The spaces of a numbered database.

use super::{Result, Space, Store};

/// One of the numbered databases.
pub struct Database {
    /// Its number.
    pub number: usize,
    /// Main records by key.
    pub main: Space,
    /// Parts of collections.
    pub sub: Space,
    /// Keys by expiry.
    pub ttl: Space,
    /// Garbage.
    pub garbage: Space,
}

impl Database {
    /// Opens or creates the maps of a database.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn open(store: &dyn Store, number: usize) -> Result<Self> {
        let [main, sub, ttl, garbage] = Self::names(number);
        Ok(Database {
            number,
            main: store.space(&main, true)?,
            sub: store.space(&sub, false)?,
            ttl: store.space(&ttl, false)?,
            garbage: store.space(&garbage, false)?,
        })
    }

    /// The names of its maps.
    pub fn names(number: usize) -> [String; 4] {
        ["", ".s", ".t", ".g"].map(|suffix| format!("r{number}{suffix}"))
    }

    /// Its maps.
    pub fn spaces(&self) -> [&Space; 4] {
        [&self.main, &self.sub, &self.ttl, &self.garbage]
    }
}
