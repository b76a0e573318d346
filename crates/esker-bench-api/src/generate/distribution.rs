//! Draws the item of an operation: uniform, zipfian, latest or hotspot.
//!
//! Zipf by octaves: rank k has weight k^-s. Draw an octave j with weight 2^(j(1-s)) and a rank k uniformly in
//! 2^j .. 2^(j+1). Accept it with probability (2^j / k)^s if k <= n, otherwise draw again. This is exact for
//! every s and takes fewer than three rounds on average. It needs no sum over n, so `n` may grow between
//! draws. For s = 1 there is no power to compute.
//!
//! - A draw is below `n`.
//! - The most frequent numbers of a scattered draw stay the same while items are inserted. Ranks are
//!   scattered over a fixed range, and numbers that do not exist yet are drawn again, as YCSB does. If ranks
//!   were scattered over a growing `n`, each insert would change the most frequent numbers.

use super::mix64;
use super::rng::Rng;

/// A distribution over the numbers below an `n` that is given with each draw.
#[derive(Clone, Debug)]
pub enum Distribution {
    /// Each number with the same probability.
    Uniform,
    /// A few numbers most of the time, scattered over all.
    Zipfian {
        /// Weights of the ranks.
        ranks: Zipf,
        /// Upper bound of the numbers that may exist; numbers beyond it are not drawn.
        numbers_max: u64,
    },
    /// Zipfian, with the newest (highest) numbers most often.
    Latest(Zipf),
    /// A part of the numbers, from 0 up, gets a part of the draws. The other numbers share the other draws.
    Hotspot {
        /// Part of the numbers that are hot, from 0 to 1.
        hot_numbers: f64,
        /// Part of the draws that are hot numbers, from 0 to 1.
        hot_draws: f64,
    },
}

impl Distribution {
    /// Draws a number below `n`.
    pub fn draw(&self, rng: &mut Rng, n: u64) -> u64 {
        match self {
            Self::Uniform => rng.below(n),
            Self::Zipfian { ranks, numbers_max } => loop {
                let number = mix64(ranks.rank(rng, n)) % numbers_max;
                if number < n {
                    return number;
                }
            },
            Self::Latest(zipf) => n - zipf.rank(rng, n),
            Self::Hotspot { hot_numbers, hot_draws } => {
                let hot = ((n as f64 * hot_numbers) as u64).clamp(1, n);
                if hot == n || rng.fraction() < *hot_draws {
                    rng.below(hot)
                } else {
                    hot + rng.below(n - hot)
                }
            }
        }
    }
}

/// Ranks with weight k^-s.
#[derive(Clone, Debug)]
pub struct Zipf {
    s: f64,
    /// Sum of the weights of all octaves up to and including each.
    cumulative: [f64; 64],
}

impl Zipf {
    /// Returns ranks with the exponent `s`, which is positive: 1 is the classic, 0.99 is that of YCSB.
    pub fn new(s: f64) -> Self {
        assert!(s > 0.0, "an exponent above 0");
        let mut sum = 0.0;
        let cumulative = std::array::from_fn(|octave| {
            sum += (octave as f64 * (1.0 - s)).exp2();
            sum
        });
        Self { s, cumulative }
    }

    /// Draws a rank from 1 to `n`.
    pub fn rank(&self, rng: &mut Rng, n: u64) -> u64 {
        let octaves = n.ilog2() as usize + 1;
        loop {
            let point = rng.fraction() * self.cumulative[octaves - 1];
            let octave = self.cumulative[..octaves].partition_point(|sum| *sum <= point).min(octaves - 1);
            let first = 1_u64 << octave;
            let rank = first + rng.below(first);
            let ratio = first as f64 / rank as f64;
            let accepted = if self.s == 1.0 { ratio } else { ratio.powf(self.s) };
            if rank <= n && rng.fraction() < accepted {
                return rank;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    fn counts(distribution: &Distribution, n: u64) -> Vec<u64> {
        let mut rng = Rng::new(11);
        let mut counts = vec![0; n as usize];
        for _ in 0..DRAWS {
            counts[distribution.draw(&mut rng, n) as usize] += 1; // a draw out of bounds panics
        }
        counts
    }

    #[test]
    fn zipf_has_the_weights_of_its_definition() {
        for (s, n) in [(1.0, 1000), (0.99, 1000), (1.0, 7), (0.5, 100), (1.2, 65)] {
            let harmonic: f64 = (1..=n).map(|k| (k as f64).powf(-s)).sum();
            let mut counts = counts(&Distribution::Latest(Zipf::new(s)), n);
            counts.reverse();
            for k in [1, 2, 3, 5, n / 2, n] {
                let expected = DRAWS as f64 * (k as f64).powf(-s) / harmonic;
                let got = counts[k as usize - 1] as f64;
                assert!(
                    (got - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                    "s {s} n {n} k {k}: {got} {expected}"
                );
            }
        }
    }

    #[test]
    fn the_others_are_what_they_say() {
        let uniform = counts(&Distribution::Uniform, 100);
        assert!(uniform.iter().all(|count| (1_700..2_300).contains(count)), "{uniform:?}");
        let hotspot = counts(&Distribution::Hotspot { hot_numbers: 0.2, hot_draws: 0.8 }, 100);
        let hot: u64 = hotspot[..20].iter().sum();
        assert!((DRAWS * 79 / 100..DRAWS * 81 / 100).contains(&hot), "{hot}");
        let zipfian = counts(&Distribution::Zipfian { ranks: Zipf::new(0.99), numbers_max: 1000 }, 1000);
        let most = (0..1000).max_by_key(|i| zipfian[*i as usize]).unwrap();
        assert_eq!(most, mix64(1) % 1000, "the favourite is scattered");
        assert_eq!(counts(&Distribution::Latest(Zipf::new(1.0)), 1), [DRAWS]);
    }

    #[test]
    fn favourites_stay_while_numbers_are_inserted() {
        let zipfian = Distribution::Zipfian { ranks: Zipf::new(0.99), numbers_max: 1250 };
        let favourites = |n| {
            let counts = counts(&zipfian, n);
            let mut numbers: Vec<_> = (0..n).collect();
            numbers.sort_by_key(|i| std::cmp::Reverse(counts[*i as usize]));
            numbers.truncate(5);
            numbers
        };
        let before = favourites(1000);
        for n in [1001, 1010, 1100] {
            let stayed = favourites(n).into_iter().filter(|i| before.contains(i)).count();
            assert!(stayed >= 4, "{stayed} of 5 with {n} numbers");
        }
    }

    #[test]
    fn draws_are_pinned() {
        let mut rng = Rng::new(1);
        let zipf = Zipf::new(0.99);
        let sum = (0..1000).fold(0_u64, |sum, _| sum.rotate_left(5) ^ zipf.rank(&mut rng, 1_000_000));
        assert_eq!(sum, 13934463083389307911);
        let (mut rng, zipfian) = (Rng::new(1), Distribution::Zipfian { ranks: zipf, numbers_max: 1250 });
        let sum = (1000..1100).fold(0_u64, |sum, n| sum.rotate_left(5) ^ zipfian.draw(&mut rng, n));
        assert_eq!(sum, 13053624719225085048);
    }
}
