//! The Rust programs of the book, as tests: `cargo test -p esker-book --doc`.
//!
//! Each chapter is the documentation of a module that only tests of documentation see. `cargo xtask book`
//! fails if a chapter is missing here.

macro_rules! chapters {
    ($($name:ident $path:literal)*) => { $(
        #[cfg(doctest)]
        #[doc = include_str!($path)]
        mod $name {}
    )* };
}

chapters! {
    introduction "introduction.md"
    tutorial "tutorial.md"
    concepts "concepts.md"
    keyspaces "guide/keyspaces.md"
    transactions "guide/transactions.md"
    patterns "guide/patterns.md"
    monitoring "operations/monitoring.md"
    tuning "tuning.md"
    moving_data "moving/data.md"
    moving_sled "moving/sled.md"
    moving_leveldb "moving/leveldb-rocksdb.md"
    moving_lmdb "moving/lmdb-bbolt.md"
    moving_badger "moving/badger.md"
    errors "errors.md"
}
