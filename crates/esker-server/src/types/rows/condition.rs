//! Conditions on the columns of a row: several lists of tests. A condition holds if all tests of one list do.

use super::codec::{cell_key, decode_value};
use super::walk::Source;
use crate::resp::fail::Done;

/// A test of a column's data, byte by byte.
#[derive(Clone, Debug)]
pub enum Test {
    /// The column exists.
    Exists,
    /// Equal to this.
    Equal(Vec<u8>),
    /// Less than this.
    Less(Vec<u8>),
    /// At most this.
    AtMost(Vec<u8>),
    /// More than this.
    More(Vec<u8>),
    /// At least this.
    AtLeast(Vec<u8>),
    /// In this range, inclusive.
    Between(Vec<u8>, Vec<u8>),
}

impl Test {
    fn holds(&self, data: &[u8]) -> bool {
        match self {
            Test::Exists => true,
            Test::Equal(value) => data == *value,
            Test::Less(value) => data < &**value,
            Test::AtMost(value) => data <= &**value,
            Test::More(value) => data > &**value,
            Test::AtLeast(value) => data >= &**value,
            Test::Between(from, to) => data >= &**from && data <= &**to,
        }
    }
}

/// A condition on a row. A missing column passes no test.
#[derive(Clone, Debug)]
pub struct Condition(pub Vec<Vec<(Vec<u8>, Test)>>);

impl Condition {
    /// Returns whether the row of a key satisfies it.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn holds(&self, source: &Source<'_>, table: &[u8], key: &[u8]) -> Done<bool> {
        for all in &self.0 {
            let mut holds = true;
            for (column, test) in all {
                let stored = source.reads.get(source.space, &cell_key(table, key, column)?)?;
                holds = match stored {
                    Some(stored) => test.holds(decode_value(&stored)?.1),
                    None => false,
                };
                if !holds {
                    break;
                }
            }
            if holds {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
