//! An order in which to visit all items.
//!
//! It visits each number below `n` once in `n` steps. Neighbours in the visit are never neighbours in
//! insertion order, so an engine that keeps items in arrival order has no advantage.

/// A visiting order of the numbers below `n`: `start, start + stride, ...` modulo `n`, with a stride near the
/// golden section of `n` and prime to it.
#[derive(Clone, Debug)]
pub struct Order {
    n: u64,
    stride: u64,
    next: u64,
}

impl Order {
    /// Returns an order over `0..n`. Different values of `start` give different orders of the same kind.
    pub fn new(n: u64, start: u64) -> Self {
        assert!(n > 0, "an order of nothing");
        let golden_section = n as f64 * 0.618_033_988_749_895;
        let stride = (golden_section as u64..n).find(|stride| gcd(*stride, n) == 1).unwrap_or(1);
        Self { n, stride: stride.max(1), next: start % n }
    }

    /// Returns the order from its `steps`-th number on.
    pub fn skip_to(&self, steps: u64) -> Self {
        let moved = u128::from(self.stride) * u128::from(steps) + u128::from(self.next);
        Self { next: (moved % u128::from(self.n)) as u64, ..self.clone() }
    }
}

impl Iterator for Order {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let current = self.next;
        let next = current + self.stride;
        self.next = if next >= self.n { next - self.n } else { next };
        Some(current)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_visits_everything_once_and_never_a_neighbour() {
        for n in [1, 2, 3, 7, 10, 64, 1000, 351_000] {
            for start in [0, 1, n - 1] {
                let order = Order::new(n, start);
                let mut visited: Vec<u64> = order.clone().take(n as usize).collect();
                assert!(n < 7 || visited.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1), "n {n}");
                assert_eq!(order.skip_to(n / 2).next(), visited.get(n as usize / 2).copied());
                visited.sort_unstable();
                assert!(visited.into_iter().eq(0..n), "n {n}");
            }
        }
    }
}
