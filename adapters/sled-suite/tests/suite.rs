//! The tests of sled 0.34.7's `tests/test_tree.rs` on `esker-sled`. build.rs says what is left out.

#![allow(clippy::all, unused, deprecated, unexpected_cfgs)]

extern crate esker_sled as sled;

mod common {
    /// sled's tests log.
    pub(crate) fn setup_logger() {}
}

mod tree {
    include!(concat!(env!("OUT_DIR"), "/tree.rs"));
}

/// Stands for sled's guard of the epoch, whose garbage these tests collect.
struct Guard;

impl Guard {
    fn flush(&self) {}
}

fn pin() -> Guard {
    Guard
}

include!(concat!(env!("OUT_DIR"), "/test_tree.rs"));
