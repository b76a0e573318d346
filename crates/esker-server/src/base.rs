//! What all layers use: time, texts, numbers, failures.

pub mod clock;
pub mod fail;
pub mod glob;
pub mod numbers;
pub mod sha1;
