//! The engine: a database while it runs. [`core`] shows its layers.

pub(crate) mod base;
pub(crate) mod core;
pub(crate) mod disk;
pub(crate) mod life;
pub(crate) mod state;
pub(crate) mod upkeep;
pub(crate) mod writes;
