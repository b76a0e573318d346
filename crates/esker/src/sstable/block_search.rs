//! Counts heads: the inner loop of every lookup, compiled for several instruction sets.
//!
//! ```text
//!   Simd::detect() once per table --> heads_below: within a block, u32 heads
//!                                 `-> node_rank:   within a node of the index tree, u64 heads
//! ```
//!
//! block_search.2. A variant runs only if its instructions were detected: [`Simd`] is created only by
//!     [`Simd::detect`].
//!
//! All variants return the same number; the portable one defines it.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls into functions compiled for instruction sets detected at run time")
)]

use crate::types::prefetch::prefetch_line;

/// Number of heads in a node of the index tree.
pub(super) const NODE: usize = 16;

/// More heads are first narrowed by bisection. 64 heads are 4 cache lines, fetched in parallel.
const COUNTED_MAX: usize = 64;

/// The instruction set to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Simd(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Simd {
    /// Returns the best instruction set of this processor.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("popcnt") {
                return Simd(Set::Avx512);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
                return Simd(Set::Avx2);
            }
        }
        Simd(Set::Portable)
    }

    /// Returns how many of the heads (sorted, little-endian) are smaller than `head`.
    #[inline]
    pub(super) fn heads_below(self, heads: &[[u8; 4]], head: u32) -> usize {
        let (base, window) = narrow(heads, head);
        base + match self.0 {
            Set::Portable => count_portable(window, head),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: block_search.2.
            Set::Avx2 => unsafe { x86::count_avx2(window, head) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: block_search.2.
            Set::Avx512 => unsafe { x86::count_avx512(window, head) },
        }
    }

    /// Returns how many heads of a node are not larger than `head`.
    #[inline(always)]
    pub(super) fn node_rank(self, node: &[u64; NODE], head: u64) -> usize {
        match self.0 {
            Set::Portable => rank_portable(node, head),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: block_search.2.
            Set::Avx2 => unsafe { x86::rank_avx2(node, head) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: block_search.2.
            Set::Avx512 => unsafe { x86::rank_avx512(node, head) },
        }
    }
}

/// Prefetches `line_count` cache lines starting at `at`.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], at: usize, line_count: usize) {
    const LINE: usize = 64;
    for line in 0..line_count {
        let Some(byte) = bytes.get(at + line * LINE) else { return };
        prefetch_line(byte);
    }
}

/// Bisects until at most [`COUNTED_MAX`] heads remain: all earlier heads are smaller than `head`, and no
/// later one is.
#[inline]
fn narrow(heads: &[[u8; 4]], head: u32) -> (usize, &[[u8; 4]]) {
    let (mut base, mut window) = (0, heads);
    while window.len() > COUNTED_MAX {
        let half = window.len() / 2;
        if u32::from_le_bytes(window[half]) < head {
            base += half;
            window = &window[half..];
        } else {
            window = &window[..half];
        }
    }
    (base, window)
}

#[inline(always)]
fn count_portable(heads: &[[u8; 4]], head: u32) -> usize {
    heads.iter().map(|h| u32::from(u32::from_le_bytes(*h) < head)).sum::<u32>() as usize
}

#[inline(always)]
fn rank_portable(node: &[u64; NODE], head: u64) -> usize {
    node.iter().map(|&h| u64::from(h <= head)).sum::<u64>() as usize
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm512_cmple_epu64_mask, _mm512_cmplt_epu32_mask, _mm512_loadu_si512, _mm512_maskz_loadu_epi32,
        _mm512_set1_epi32, _mm512_set1_epi64,
    };

    use super::NODE;

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn count_avx2(heads: &[[u8; 4]], head: u32) -> usize {
        super::count_portable(heads, head)
    }

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn rank_avx2(node: &[u64; NODE], head: u64) -> usize {
        super::rank_portable(node, head)
    }

    #[target_feature(enable = "avx512f,popcnt")]
    pub(super) fn count_avx512(heads: &[[u8; 4]], head: u32) -> usize {
        let wanted = _mm512_set1_epi32(head as i32);
        let (whole, rest) = heads.as_chunks::<16>();
        let mut below = 0;
        for chunk in whole {
            // SAFETY: a chunk is 64 readable bytes; the load needs no alignment.
            let found = unsafe { _mm512_loadu_si512(chunk.as_ptr().cast()) };
            below += _mm512_cmplt_epu32_mask(found, wanted).count_ones();
        }
        if !rest.is_empty() {
            let present = (1u16 << rest.len()) - 1;
            // SAFETY: the mask restricts the load to the heads in `rest`.
            let found = unsafe { _mm512_maskz_loadu_epi32(present, rest.as_ptr().cast()) };
            below += (_mm512_cmplt_epu32_mask(found, wanted) & present).count_ones();
        }
        below as usize
    }

    #[target_feature(enable = "avx512f,popcnt")]
    pub(super) fn rank_avx512(node: &[u64; NODE], head: u64) -> usize {
        let wanted = _mm512_set1_epi64(head as i64);
        let (halves, _) = node.as_chunks::<8>();
        let mut rank = 0;
        for half in halves {
            // SAFETY: a half is 64 readable bytes; the load needs no alignment.
            let found = unsafe { _mm512_loadu_si512(half.as_ptr().cast()) };
            rank += _mm512_cmple_epu64_mask(found, wanted).count_ones();
        }
        rank as usize
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn available() -> Vec<Simd> {
        let mut sets = vec![Simd(Set::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
                sets.push(Simd(Set::Avx2));
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("popcnt") {
                sets.push(Simd(Set::Avx512));
            }
        }
        sets
    }

    /// Reports the widest instruction set if it is missing. Fails if `ESKER_REQUIRE` names `avx512`.
    fn tell_what_is_not_tested() {
        #[cfg(target_arch = "x86_64")]
        {
            if available().contains(&Simd(Set::Avx512)) {
                return;
            }
        }
        let required = std::env::var("ESKER_REQUIRE").unwrap_or_default();
        let is_required = required.split(',').any(|name| name == "avx512");
        assert!(!is_required, "ESKER_REQUIRE={required}: this processor has no AVX-512");
        // Not printed as test output, which a passing test would hide.
        let _ = writeln!(std::io::stderr(), "SKIPPED: avx512: the processor has none, nothing was tested");
    }

    #[test]
    fn block_search_1_all_variants_count_alike() {
        tell_what_is_not_tested();
        let mut rng = fastrand::Rng::with_seed(1);
        let step = if cfg!(miri) { 13 } else { 1 };
        for len in (0..140).step_by(step).chain([500, 1000]) {
            let top = if len % 2 == 0 { u32::MAX } else { 30 };
            let mut numbers: Vec<u32> = (0..len).map(|_| rng.u32(..=top)).collect();
            numbers.sort_unstable();
            let heads: Vec<[u8; 4]> = numbers.iter().map(|n| n.to_le_bytes()).collect();
            let mut probes = vec![0, 1, u32::MAX, u32::MAX - 1, 1 << 31];
            probes.extend(numbers.iter().copied().take(40));
            probes.extend((0..10).map(|_| rng.u32(..=top)));
            for probe in probes {
                let expected = numbers.partition_point(|&n| n < probe);
                for simd in available() {
                    assert_eq!(simd.heads_below(&heads, probe), expected, "{simd:?} {len} {probe}");
                }
            }
            let mut node: [u64; NODE] = std::array::from_fn(|_| rng.u64(..));
            node.sort_unstable();
            for probe in [0, u64::MAX, 1 << 63, node[0], node[7], node[15], rng.u64(..)] {
                let expected = node.partition_point(|&n| n <= probe);
                assert!(available().iter().all(|s| s.node_rank(&node, probe) == expected));
            }
        }
    }
}
