//! Walks over the columns of rows, skipping what was not requested.
//!
//! ```text
//!   a1 a2 a3 .. a900 b1 b2 ..      requested: the first column of each key
//!   ^  `-- near: step, far: seek --^
//! ```
//!
//! Each requested column is shown once, in the direction of the walk.

use std::ops::ControlFlow;

use esker_tuple::{append_bytes, bytes_of};

use super::codec::{begins_with, behind, first_part, foreign, prefix};
use crate::resp::fail::Done;
use crate::store::spans::{NamePosition, Spans, Stretch};
use crate::store::{Order, Reads, Space, Span};

/// Number of columns to step over before seeking, which takes about as long.
const NEAR: usize = 16;

/// Rows of one state.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The state.
    pub reads: &'a dyn Reads,
    /// The keyspace of the rows.
    pub space: &'a Space,
}

/// A column that is shown.
pub struct Shown<'a> {
    /// Whether it is the first one shown of its key.
    pub is_first: bool,
    /// The key.
    pub key: &'a [u8],
    /// The column's name.
    pub column: &'a [u8],
    /// Its stored value.
    pub value: &'a [u8],
}

/// How a walk continues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// With the next column.
    Next,
    /// With the next key.
    NextKey,
    /// It ends.
    Stop,
}

/// A range of keys of a table as stored keys: start inclusive, end exclusive.
pub fn stored_stretch(table: &[u8], keys: &Stretch) -> (Vec<u8>, Vec<u8>) {
    let of_table = prefix(&[table]);
    let upper = match &keys.to {
        Some(to) => prefix(&[table, to]),
        None => behind(of_table.clone()),
    };
    let lower = if keys.from.is_empty() { of_table } else { prefix(&[table, &keys.from]) };
    (lower, upper)
}

/// The position of a walk.
struct Position<'a> {
    columns: &'a Spans,
    order: Order,
    table_bytes: usize,
    /// The stored table and key of the last column.
    row: Vec<u8>,
    key: Vec<u8>,
    /// Whether one of its columns was shown.
    is_shown: bool,
    /// Columns before this stored key are skipped.
    target: Option<Vec<u8>>,
    passed: usize,
}

impl Position<'_> {
    fn is_before_target(&self, stored: &[u8]) -> bool {
        let order = self.order;
        self.target.as_deref().is_some_and(|target| match order {
            Order::Up => stored < target,
            Order::Down => stored >= target,
        })
    }

    /// Sets the stored key of the next requested column.
    fn aim(&mut self, target: Vec<u8>) {
        (self.target, self.passed) = (Some(target), 0);
    }

    fn aim_at_next_key(&mut self) {
        let row = self.row.clone();
        self.aim(if self.order == Order::Up { behind(row) } else { row });
    }

    /// Moves to a stored key and returns its column.
    fn arrive<'k>(&mut self, stored: &'k [u8]) -> Done<&'k [u8]> {
        if self.row.is_empty() || !begins_with(stored, &self.row) {
            let key = stored.get(self.table_bytes..).and_then(first_part).ok_or_else(|| foreign("key"))?;
            self.row.clear();
            self.row.extend_from_slice(&stored[..self.table_bytes + key.len()]);
            self.key.clear();
            self.key.extend_from_slice(&bytes_of(key));
            self.is_shown = false;
        }
        Ok(&stored[self.row.len()..])
    }

    fn meet(
        &mut self,
        stored: &[u8],
        value: &[u8],
        show: &mut dyn FnMut(Shown<'_>) -> Done<Step>,
    ) -> Done<ControlFlow<bool>> {
        if self.is_before_target(stored) {
            self.passed += 1;
            return Ok(if self.passed > NEAR { ControlFlow::Break(true) } else { ControlFlow::Continue(()) });
        }
        self.target = None;
        let column = bytes_of(self.arrive(stored)?);
        match self.columns.position(&column, self.order) {
            NamePosition::Inside => {
                let is_first = !std::mem::replace(&mut self.is_shown, true);
                match show(Shown { is_first, key: &self.key, column: &column, value })? {
                    Step::Next => {}
                    Step::NextKey => self.aim_at_next_key(),
                    Step::Stop => return Ok(ControlFlow::Break(false)),
                }
            }
            NamePosition::Before(name) => {
                let mut target = self.row.clone();
                append_bytes(&mut target, name);
                self.aim(target);
            }
            NamePosition::Behind => self.aim_at_next_key(),
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl Source<'_> {
    /// Shows these columns of these keys.
    ///
    /// # Errors
    /// Those of `show`, and the store's.
    pub fn walk(
        &self,
        table: &[u8],
        keys: &Spans,
        columns: &Spans,
        order: Order,
        mut show: impl FnMut(Shown<'_>) -> Done<Step>,
    ) -> Done {
        for stretch in keys.in_order(order) {
            let (mut lower, mut upper) = stored_stretch(table, stretch);
            let table_bytes = prefix(&[table]).len();
            let (row, key) = (Vec::new(), Vec::new());
            let mut position =
                Position { columns, order, table_bytes, row, key, is_shown: false, target: None, passed: 0 };
            while lower < upper {
                let mut end = Ok(ControlFlow::Continue(()));
                self.reads.range(
                    self.space,
                    Span::between(&lower, &upper),
                    order,
                    &mut |stored, value| {
                        end = position.meet(stored, value, &mut show);
                        if matches!(end, Ok(ControlFlow::Continue(()))) {
                            ControlFlow::Continue(())
                        } else {
                            ControlFlow::Break(())
                        }
                    },
                )?;
                match (end?, position.target.take()) {
                    (ControlFlow::Break(true), Some(target)) if order == Order::Up => lower = target,
                    (ControlFlow::Break(true), Some(target)) => upper = target,
                    (ControlFlow::Break(_), _) => return Ok(()),
                    (ControlFlow::Continue(()), _) => break,
                }
            }
        }
        Ok(())
    }

    /// The names of all tables, sorted.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn tables(&self) -> Done<Vec<Vec<u8>>> {
        let (mut tables, mut from) = (Vec::new(), Vec::new());
        loop {
            let mut found = None;
            self.reads.range(self.space, Span::from(&from), Order::Up, &mut |stored, _| {
                found = Some(first_part(stored).map(<[u8]>::to_vec));
                ControlFlow::Break(())
            })?;
            let Some(table) = found else { return Ok(tables) };
            let table = table.ok_or_else(|| foreign("key"))?;
            tables.push(bytes_of(&table).into_owned());
            from = behind(table);
        }
    }

    /// Total size of the stored keys and values in a range of keys.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn bytes(&self, table: &[u8], keys: &Stretch) -> Done<u64> {
        let (lower, upper) = stored_stretch(table, keys);
        let mut bytes = 0;
        if lower < upper {
            self.reads.range(self.space, Span::between(&lower, &upper), Order::Up, &mut |key, value| {
                bytes += (key.len() + value.len()) as u64;
                ControlFlow::Continue(())
            })?;
        }
        Ok(bytes)
    }
}
