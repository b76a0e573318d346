//! The fuzz targets without a fuzzer: damaged inputs, the corpus, and faults that must be found.

mod canaries;
mod corpus;
mod decoders;
#[path = "../../../esker/tests/common/memory.rs"]
mod memory;
