//! Turns overlapping fragments into disjoint ones.
//!
//! ```text
//!   sorted edges   a    f    m    z      between two edges the same fragments are active
//!   active         1   1,2   2
//! ```

use super::{Fragment, Seqs, SharedKey};

/// The same tombstones as fragments that satisfy range_tombstone.1. Neighbours with equal numbers are joined.
pub(super) fn disjoint(mut all: Vec<Fragment>) -> Vec<Fragment> {
    all.retain(|f| f.start < f.end);
    all.sort_by(|a, b| a.start.cmp(&b.start));
    let mut edges: Vec<&SharedKey> = all.iter().flat_map(|f| [&f.start, &f.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut out: Vec<Fragment> = Vec::new();
    let mut coming = all.iter().peekable();
    let mut active: Vec<&Fragment> = Vec::new();
    for pair in edges.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        active.retain(|f| f.end > *start);
        while let Some(begun) = coming.next_if(|f| f.start <= *start) {
            active.push(begun);
        }
        if active.is_empty() {
            continue;
        }
        let lists: Vec<_> = active.iter().map(|f| &f.seqs).collect();
        let seqs = Seqs::union(&lists);
        match out.last_mut() {
            Some(last) if last.end == *start && last.seqs == seqs => last.end = end.clone(),
            _ => out.push(Fragment { start: start.clone(), end: end.clone(), seqs }),
        }
    }
    out
}
