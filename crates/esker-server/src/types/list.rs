//! A list: a collection whose sub-keys are positions.
//!
//! ```text
//!   position (u64) --> element         head: the first position, the one after the last
//! ```
//!
//! Positions have no gaps. The first element of a new list has position 2^63, and lists grow to both sides.

use std::ops::ControlFlow;

use super::collection::Collection;
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::store::record::Kind;
use crate::store::{Order, Span, Value};

const MIDDLE: u64 = 1 << 63;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first element.
    Left,
    /// The last.
    Right,
}

/// A list.
pub struct List(Collection);

impl List {
    /// See [`Collection::open`].
    ///
    /// # Errors
    /// See there.
    pub fn open(cx: &mut Cx<'_>, key: &[u8]) -> Done<Option<Self>> {
        Ok(Collection::open(cx, key, Kind::List)?.map(List))
    }

    /// See [`Collection::open_or_new`].
    ///
    /// # Errors
    /// See there.
    pub fn open_or_new(cx: &mut Cx<'_>, key: &[u8]) -> Done<Self> {
        let mut list = Collection::open_or_new(cx, key, Kind::List)?;
        if list.is_new() {
            list.shape.head = [MIDDLE, MIDDLE, 0, 0, 0, 0];
        }
        Ok(List(list))
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its key.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    fn first(&self) -> u64 {
        self.0.shape.head[0]
    }

    fn put(&mut self, cx: &mut Cx<'_>, place: u64, element: &[u8]) -> Done {
        self.0.put(cx, &place.to_be_bytes(), element)
    }

    fn set_ends(&mut self, first: u64, behind: u64) {
        self.0.shape.head[..2].copy_from_slice(&[first, behind]);
        self.0.shape.len = behind - first;
    }

    /// Adds an element at an end.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn push(&mut self, cx: &mut Cx<'_>, end: End, element: &[u8]) -> Done {
        let (first, behind) = (self.first(), self.0.shape.head[1]);
        match end {
            End::Left => {
                self.put(cx, first - 1, element)?;
                self.set_ends(first - 1, behind);
            }
            End::Right => {
                self.put(cx, behind, element)?;
                self.set_ends(first, behind + 1);
            }
        }
        Ok(())
    }

    /// Removes and returns the element at an end.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn pop(&mut self, cx: &mut Cx<'_>, end: End) -> Done<Option<Value>> {
        if self.is_empty() {
            return Ok(None);
        }
        let (first, behind) = (self.first(), self.0.shape.head[1]);
        let place = if end == End::Left { first } else { behind - 1 };
        let element = self.0.get(cx, &place.to_be_bytes())?;
        self.0.remove(cx, &place.to_be_bytes())?;
        match end {
            End::Left => self.set_ends(first + 1, behind),
            End::Right => self.set_ends(first, behind - 1),
        }
        Ok(element)
    }

    /// The element at an index.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn get(&self, cx: &Cx<'_>, index: u64) -> Done<Option<Value>> {
        self.0.get(cx, &(self.first() + index).to_be_bytes())
    }

    /// Replaces the element at an existing index.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn set(&mut self, cx: &mut Cx<'_>, index: u64, element: &[u8]) -> Done {
        self.put(cx, self.first() + index, element)
    }

    /// Passes the elements between two indexes (inclusive) to `visit`, with their indexes.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn walk(
        &self,
        cx: &Cx<'_>,
        from: u64,
        to: u64,
        order: Order,
        visit: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Done {
        let first = self.first();
        let ends = [first + from, first + to + 1].map(u64::to_be_bytes);
        self.0.range(cx, Span::between(&ends[0], &ends[1]), order, &mut |place, element| {
            let place = place.try_into().map_or(first, u64::from_be_bytes);
            visit(place - first, element)
        })
    }

    /// The elements between two indexes, inclusive (command_memory.1).
    ///
    /// # Errors
    /// The store's; if they are too large.
    fn between(&self, cx: &Cx<'_>, from: u64, to: u64) -> Done<Vec<Vec<u8>>> {
        let mut elements = Vec::new();
        let ends = [from, to + 1].map(|index| (self.first() + index).to_be_bytes());
        self.0.try_range(cx, Span::between(&ends[0], &ends[1]), Order::Up, &mut |_, element| {
            cx.gather(element.len())?;
            elements.push(element.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(elements)
    }

    /// All elements (command_memory.1).
    ///
    /// # Errors
    /// The store's; if they are too large.
    pub fn elements(&self, cx: &Cx<'_>) -> Done<Vec<Vec<u8>>> {
        if self.is_empty() { Ok(Vec::new()) } else { self.between(cx, 0, self.len() - 1) }
    }

    /// Inserts an element before an index. Moves the shorter side.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn insert(&mut self, cx: &mut Cx<'_>, index: u64, element: &[u8]) -> Done {
        let len = self.len();
        let is_left = index < len - index;
        let (from, to) = if is_left { (0, index) } else { (index, len) };
        let mut moved = if from < to { self.between(cx, from, to - 1)? } else { Vec::new() };
        let (first, behind) = (self.first(), self.0.shape.head[1]);
        let start = if is_left {
            self.set_ends(first - 1, behind);
            moved.push(element.to_vec());
            0
        } else {
            self.set_ends(first, behind + 1);
            moved.insert(0, element.to_vec());
            index
        };
        for (n, element) in moved.iter().enumerate() {
            self.set(cx, start + n as u64, element)?;
        }
        Ok(())
    }

    /// Keeps only the elements between two indexes, inclusive.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn trim(&mut self, cx: &mut Cx<'_>, kept: Option<(u64, u64)>) -> Done {
        let (first, len) = (self.first(), self.len());
        let (from, behind) = kept.map_or((len, len), |(from, to)| (from, to + 1));
        for index in (0..from).chain(behind..len) {
            cx.step(0)?;
            self.0.remove(cx, &(first + index).to_be_bytes())?;
        }
        self.set_ends(first + from, first + behind);
        Ok(())
    }

    /// Replaces all elements by others, at most as many.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn replace(&mut self, cx: &mut Cx<'_>, old: &[Vec<u8>], new: &[Vec<u8>]) -> Done {
        for (index, element) in new.iter().enumerate() {
            if old[index] != *element {
                self.set(cx, index as u64, element)?;
            }
        }
        self.trim(cx, (new.len() as u64).checked_sub(1).map(|last| (0, last)))
    }

    /// See [`Collection::save`].
    ///
    /// # Errors
    /// See there.
    pub fn save(self, cx: &mut Cx<'_>) -> Done {
        self.0.save(cx)
    }
}
