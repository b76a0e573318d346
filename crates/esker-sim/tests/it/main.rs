//! The simulator's integration tests: one program. A test that needs a process of its own starts the program once more (`own_process.rs`).

#[path = "../../../esker/tests/common/memory.rs"]
mod memory;
mod own_process;

mod canaries;
mod damage;
mod simulate;
mod sweep;
