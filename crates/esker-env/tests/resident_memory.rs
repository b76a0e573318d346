//! Measures the resident memory of the process. The only test of its program, because others would count,
//! too.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(miri), not(esker_plain_pages)))]
#![expect(clippy::unwrap_used, reason = "a test that looks at the real process")]

use std::time::Duration;

use esker_env::{PageBuf, age_page_bufs, settle_page_bufs};

const PAGE_BYTES: usize = 4096;
/// Memory retained after freeing buffers: the minimum of warm slots and the program's own lists.
const KEPT_BYTES_MAX: usize = 8 << 20;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE_BYTES
}

#[test]
fn what_is_given_up_goes_back() {
    let before = resident_bytes();
    let seconds = |n| age_page_bufs(Duration::from_secs(n));
    let in_a_minute = || (1..60).for_each(seconds);
    let give_back: [&dyn Fn(); 2] = [&in_a_minute, &settle_page_bufs];
    for (len, give_back) in [8 << 10, 300 << 10, 4 << 20, 8 << 20].into_iter().zip(give_back.iter().cycle()) {
        let mut held: Vec<PageBuf> = (0..(64 << 20) / len).map(|_| PageBuf::new(len)).collect();
        held.iter_mut().for_each(|buffer| buffer.fill(1));
        let between = resident_bytes();
        assert!(
            between > before + (60 << 20),
            "{len}: all of it was touched: {before} bytes before, then {between}"
        );
        drop(held);
        give_back();
        let after = resident_bytes();
        assert!(after < before + KEPT_BYTES_MAX, "{len}: {before} bytes before, {after} after");
    }
}
