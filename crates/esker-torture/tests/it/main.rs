//! Integration tests of `esker-torture`.

mod block;
mod engine_canaries;
mod history;
mod kill;
mod power;
