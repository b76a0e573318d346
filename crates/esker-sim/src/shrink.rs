//! Shrinks a failing sequence: removes chunks, from halves down to single operations, while it still fails.

/// Returns the shortest failing part found. `fails` must hold for `ops` itself, and is called at most `tries`
/// times.
pub fn shrink<T: Clone>(ops: &[T], mut tries: usize, fails: impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut ops = ops.to_vec();
    let mut chunk = ops.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let before = ops.len();
        while at < ops.len() && tries > 0 {
            let mut without = ops.clone();
            without.drain(at..(at + chunk).min(ops.len()));
            tries -= 1;
            if fails(&without) {
                ops = without;
            } else {
                at += chunk;
            }
        }
        if tries == 0 || (chunk == 1 && ops.len() == before) {
            return ops;
        }
        chunk = chunk.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_ops_that_matter() {
        let ops: Vec<u32> = (0..200).collect();
        let fails = |ops: &[u32]| ops.contains(&17) && ops.contains(&130);
        assert_eq!(shrink(&ops, 10_000, fails), [17, 130]);
    }
}
