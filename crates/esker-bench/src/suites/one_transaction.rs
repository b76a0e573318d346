//! Rows of one transaction, for engines that cannot have one so large.
//!
//! bench_one_transaction.1. Every item is written whatever the answer is, so that later rows do the same work.

use std::ops::Range;
use std::time::Instant;

use esker_bench_api::{Engine, Failure, Feature, Isolation, Store, Writer};

/// Items of a transaction where one cannot have all.
const STEP: u64 = 1000;

/// Why `engine` cannot have all items of a row in one transaction. An engine of single operations has no transaction that could be too
/// large.
pub(crate) fn cannot_be_large(engine: &dyn Engine) -> Option<&'static str> {
    let is_operation = engine.isolation() == Isolation::Operation;
    engine.cannot(Feature::LargeTransactions).filter(|_| !is_operation)
}

/// Writes `count` items in one transaction. An engine that cannot have one so large, or whose authors advise against it (`why`), gets the same
/// items in as many as it needs, and the answer says why the row has no value (bench_one_transaction.1).
pub(crate) fn in_one_transaction(
    store: &dyn Store,
    why: Option<&str>,
    count: u64,
    write: impl Fn(&mut dyn Writer, Range<u64>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(why) = why else { return store.write(&mut |writer| write(writer, 0..count)) };
    let start = Instant::now();
    for from in (0..count).step_by(STEP as usize) {
        store.write(&mut |writer| write(writer, from..count.min(from + STEP)))?;
    }
    let took = start.elapsed().as_secs_f64();
    Err(Failure::Unsupported(format!("{why}; the same items in transactions of {STEP} took {took:.3} s")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines;
    use esker_bench_api::OpenOptions;

    #[test]
    fn a_load_that_cannot_be_one_transaction_is_whole_and_says_how_long_it_took() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engines::find("redb").unwrap();
        let store = engine.open(dir.path(), &OpenOptions::with_cache(16 << 20)).unwrap();
        let put = |writer: &mut dyn Writer, mut items: Range<u64>| {
            items.try_for_each(|i| writer.put(&i.to_be_bytes(), b"value"))
        };
        let error = in_one_transaction(&*store, Some("too large"), 2500, put).unwrap_err().to_string();
        assert!(error.starts_with("not supported: too large; the same items in transactions of 1000 took "));
        assert_eq!(store.reader().unwrap().len().unwrap(), 2500, "bench_one_transaction.1");
        in_one_transaction(&*store, None, 3000, put).unwrap();
        assert_eq!(store.reader().unwrap().len().unwrap(), 3000);
    }

    #[cfg(feature = "peers")]
    #[test]
    fn single_operations_are_never_too_large() {
        let why = |name| cannot_be_large(engines::find(name).unwrap());
        assert!(why("persy").is_some() && why("bf-tree").is_none() && why("lmdb").is_none());
    }
}
