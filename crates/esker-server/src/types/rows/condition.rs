//! Conditions on the columns of a row: any of several lists of tests, all of which hold.

use super::codec::{cell_key, decode_value};
use super::walk::Source;
use crate::base::fail::Done;

/// What a column's data has to be, byte by byte.
#[derive(Clone, Debug)]
pub enum Test {
    /// Anything.
    Exists,
    /// This.
    Equal(Vec<u8>),
    /// Less than this.
    Less(Vec<u8>),
    /// This or less.
    AtMost(Vec<u8>),
    /// More than this.
    More(Vec<u8>),
    /// This or more.
    AtLeast(Vec<u8>),
    /// From one to another, both included.
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

/// A condition on a row. A column that is not there passes no test.
#[derive(Clone, Debug)]
pub struct Condition(pub Vec<Vec<(Vec<u8>, Test)>>);

impl Condition {
    /// Whether the row of a key fulfils it.
    ///
    /// # Errors
    /// The store's.
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
