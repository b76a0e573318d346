//! Compares answers with the generator, for all suites.

use esker_bench_api::generate::checksum::checksum;
use esker_bench_api::{Failure, Reader, Result};

use crate::suites::works::expect;

/// Reads everything and compares every byte with the expected content: `count` items whose checksums sum up
/// to `expected`.
pub(crate) fn full_scan(reader: &mut dyn Reader, count: u64, expected: u64) -> Result<()> {
    check_scan(count, expected, |visit| reader.range(&[], u64::MAX, visit))
}

/// The same for the items that `scan` shows.
pub(crate) fn check_scan(
    count: u64,
    expected: u64,
    scan: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<u64>,
) -> Result<()> {
    let (mut sum, mut previous, mut sorted) = (0_u64, Vec::new(), true);
    let seen = scan(&mut |key, value| {
        sum = sum.wrapping_add(checksum(key, value));
        sorted &= *previous < *key;
        previous.clear();
        previous.extend_from_slice(key);
    })?;
    expect("number of items in a full scan", seen, count)?;
    expect("checksum of a full scan", sum, expected)?;
    if sorted { Ok(()) } else { Err(Failure::Wrong("a full scan was not in key order".to_owned())) }
}
