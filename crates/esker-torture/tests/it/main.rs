//! The integration tests of torture: one program.

mod block;
mod engine_canaries;
mod history;
mod kill;
mod power;
