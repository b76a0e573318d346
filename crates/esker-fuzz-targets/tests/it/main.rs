//! Tests the fuzz targets without a fuzzer: damaged inputs, the corpus, and injected faults.

mod canaries;
mod corpus;
mod decoders;
#[path = "../../../esker/tests/common/memory.rs"]
mod memory;
#[path = "../../../esker-sim/tests/it/own_process.rs"]
mod own_process;
