//! Sets of keys or of columns, combined from ranges and lists.
//!
//! The stretches are sorted and not empty, and no two of them touch.

use std::ops::Bound;

use crate::store::{Order, Span, prefix_end};

/// A range of names: from one name, included, to another, excluded, or to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// First name of the range.
    pub from: Vec<u8>,
    /// End of the range, excluded. `None` means the end of all names.
    pub to: Option<Vec<u8>>,
}

impl Stretch {
    /// Returns the range from `from` to `to`. An empty `to` means the end.
    pub fn range(from: &[u8], to: &[u8]) -> Self {
        Stretch { from: from.to_vec(), to: (!to.is_empty()).then(|| to.to_vec()) }
    }

    /// Returns the range of all names that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        Stretch { from: prefix.to_vec(), to: prefix_end(prefix) }
    }

    /// Returns the range with this name only.
    pub fn point(name: &[u8]) -> Self {
        Stretch { from: name.to_vec(), to: Some(next_name(name)) }
    }

    /// Returns the range that a walk over these bounds visits.
    pub fn of_span(span: Span<'_>) -> Self {
        let from = match span.lower {
            Bound::Unbounded => Vec::new(),
            Bound::Included(name) => name.to_vec(),
            Bound::Excluded(name) => next_name(name),
        };
        let to = match span.upper {
            Bound::Unbounded => None,
            Bound::Included(name) => Some(next_name(name)),
            Bound::Excluded(name) => Some(name.to_vec()),
        };
        Stretch { from, to }
    }

    /// Returns the bounds of a walk over the range.
    pub fn span(&self) -> Span<'_> {
        Span {
            lower: Bound::Included(&self.from),
            upper: self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        }
    }

    fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// Returns whether the two ranges may have a name in common.
    pub fn meets(&self, other: &Stretch) -> bool {
        let begins_in = |a: &Stretch, b: &Stretch| b.to.as_ref().is_none_or(|to| a.from < *to);
        begins_in(self, other) && begins_in(other, self)
    }

    fn contains(&self, name: &[u8]) -> bool {
        *self.from <= *name && self.to.as_deref().is_none_or(|to| name < to)
    }
}

/// Returns the smallest name after `name`.
pub fn next_name(name: &[u8]) -> Vec<u8> {
    [name, &[0]].concat()
}

/// Position of a name relative to a set.
#[derive(Debug, PartialEq, Eq)]
pub enum NamePosition<'a> {
    /// Inside a stretch.
    Inside,
    /// Before a stretch. Holds the name at which a walk enters the stretch: its start, or its end for a
    /// descending walk.
    Before(&'a [u8]),
    /// After all stretches.
    Behind,
}

/// A set of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans(Vec<Stretch>);

impl Spans {
    /// Returns the set of all names.
    pub fn all() -> Self {
        Spans(vec![Stretch::range(b"", b"")])
    }

    /// Returns the union of these ranges.
    pub fn of(mut stretches: Vec<Stretch>) -> Self {
        stretches.retain(|stretch| !stretch.is_empty());
        stretches.sort_unstable_by(|a, b| a.from.cmp(&b.from));
        let mut spans: Vec<Stretch> = Vec::new();
        for next in stretches {
            match spans.last_mut() {
                Some(last) if last.to.as_ref().is_none_or(|to| *to >= next.from) => {
                    if last.to.is_some() && (next.to.is_none() || next.to > last.to) {
                        last.to = next.to;
                    }
                }
                _ => spans.push(next),
            }
        }
        Spans(spans)
    }

    /// Returns the part after `name` in the order of the walk.
    pub fn after(self, name: &[u8], order: Order) -> Self {
        let mut stretches = self.0;
        for stretch in &mut stretches {
            match order {
                Order::Up => stretch.from = next_name(name).max(std::mem::take(&mut stretch.from)),
                Order::Down if stretch.to.as_deref().is_none_or(|to| to > name) => {
                    stretch.to = Some(name.to_vec());
                }
                Order::Down => {}
            }
        }
        Spans::of(stretches)
    }

    /// Returns the stretches in the order of the walk.
    pub fn in_order(&self, order: Order) -> impl Iterator<Item = &Stretch> {
        let len = self.0.len();
        (0..len).map(move |at| &self.0[if order == Order::Up { at } else { len - 1 - at }])
    }

    /// Returns the position of a name for a walk in this order.
    pub fn position(&self, name: &[u8], order: Order) -> NamePosition<'_> {
        match order {
            Order::Up => {
                let at = self.0.partition_point(|s| s.to.as_deref().is_some_and(|to| to <= name));
                match self.0.get(at) {
                    None => NamePosition::Behind,
                    Some(stretch) if stretch.contains(name) => NamePosition::Inside,
                    Some(stretch) => NamePosition::Before(&stretch.from),
                }
            }
            Order::Down => {
                let at = self.0.partition_point(|stretch| *stretch.from <= *name);
                match at.checked_sub(1).map(|at| &self.0[at]) {
                    None => NamePosition::Behind,
                    Some(stretch) if stretch.contains(name) => NamePosition::Inside,
                    Some(stretch) => NamePosition::Before(stretch.to.as_deref().unwrap_or_default()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> impl Iterator<Item = Vec<u8>> {
        (0..=3).flat_map(|len: u32| {
            (0..3_usize.pow(len)).map(move |n| (0..len).map(|at| b"\0ab"[n / 3_usize.pow(at) % 3]).collect())
        })
    }

    #[test]
    fn a_union_holds_what_any_part_holds() {
        let mut random = fastrand::Rng::with_seed(7);
        let all: Vec<Vec<u8>> = names().collect();
        for _ in 0..500 {
            let mut pick = || all[random.usize(..all.len())].clone();
            let parts: Vec<Stretch> = (0..3)
                .flat_map(|_| {
                    [Stretch::range(&pick(), &pick()), Stretch::point(&pick()), Stretch::prefix(&pick())]
                })
                .take(4)
                .collect();
            let (spans, pivot) = (Spans::of(parts.clone()), pick());
            assert!(spans.0.windows(2).all(|pair| pair[0].to.as_ref().is_some_and(|to| *to < pair[1].from)));
            let (up, down) =
                (spans.clone().after(&pivot, Order::Up), spans.clone().after(&pivot, Order::Down));
            for name in &all {
                let is_in = parts.iter().any(|part| !part.is_empty() && part.contains(name));
                for order in [Order::Up, Order::Down] {
                    assert_eq!(
                        spans.position(name, order) == NamePosition::Inside,
                        is_in,
                        "{parts:?} {name:?}"
                    );
                }
                assert_eq!(up.position(name, Order::Up) == NamePosition::Inside, is_in && *name > pivot);
                assert_eq!(down.position(name, Order::Up) == NamePosition::Inside, is_in && *name < pivot);
            }
        }
    }

    #[test]
    fn positions_say_where_to_go_on() {
        let spans = Spans::of(vec![Stretch::range(b"b", b"d"), Stretch::range(b"f", b"h")]);
        let up = [&b"a"[..], b"b", b"d", b"h"].map(|name| spans.position(name, Order::Up));
        assert_eq!(
            up,
            [
                NamePosition::Before(b"b"),
                NamePosition::Inside,
                NamePosition::Before(b"f"),
                NamePosition::Behind
            ]
        );
        let down = [&b"x"[..], b"f", b"e", b"a"].map(|name| spans.position(name, Order::Down));
        assert_eq!(
            down,
            [
                NamePosition::Before(b"h"),
                NamePosition::Inside,
                NamePosition::Before(b"d"),
                NamePosition::Behind
            ]
        );
    }
}
