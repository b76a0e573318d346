//! What is read from a database, compared with the model.

pub mod read;
pub(crate) mod walk;
