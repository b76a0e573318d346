//! The simulator's integration tests, in one program. A test that needs its own process starts the program
//! again (`own_process.rs`).

#[path = "../../../esker/tests/common/memory.rs"]
mod memory;
mod own_process;

mod canaries;
mod damage;
mod simulate;
mod sweep;
