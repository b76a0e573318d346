//! Placeholder until its owner writes it.
fn main() {}
