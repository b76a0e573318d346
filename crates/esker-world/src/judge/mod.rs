//! Compares what is read from a database with the model.

pub mod read;
pub(crate) mod walk;
