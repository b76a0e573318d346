//! Copies a few bytes with two loads and two stores instead of a call.

/// Copies `from` to the start of `to`.
///
/// # Panics
/// If `to` is shorter.
#[inline(always)]
pub(crate) fn copy_small(to: &mut [u8], from: &[u8]) {
    let to = &mut to[..from.len()];
    // Two pieces of n bytes that may overlap cover every length from n to 2 n.
    macro_rules! two_pieces {
        ($n:literal) => {
            if let (Some(first), Some(last)) = (from.first_chunk::<$n>(), from.last_chunk::<$n>()) {
                *to.first_chunk_mut().expect("as long as `from`") = *first;
                *to.last_chunk_mut().expect("as long as `from`") = *last;
                return;
            }
        };
    }
    match from.len() {
        0 => {}
        1 => to[0] = from[0],
        2..4 => two_pieces!(2),
        4..8 => two_pieces!(4),
        8..16 => two_pieces!(8),
        16..=32 => two_pieces!(16),
        _ => to.copy_from_slice(from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_and_nothing_else_is_touched() {
        let from: Vec<u8> = (1..=100).collect();
        for len in 0..=from.len() {
            let mut to = [0; 110];
            copy_small(&mut to, &from[..len]);
            assert_eq!((&to[..len], to[len..].iter().max()), (&from[..len], Some(&0)));
        }
    }
}
