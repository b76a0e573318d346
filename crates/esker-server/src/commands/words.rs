//! The words of a request, one after the other.

use crate::base::fail::{Done, SYNTAX};
use crate::base::numbers::int;
use crate::resp::Request;

/// The words of a request that were not read yet.
pub(super) struct Words<'r> {
    request: &'r Request,
    at: usize,
}

impl<'r> Words<'r> {
    /// From this one on.
    pub(super) fn new(request: &'r Request, at: usize) -> Self {
        Words { request, at }
    }

    /// Whether all were read.
    pub(super) fn is_over(&self) -> bool {
        self.at >= self.request.len()
    }

    /// The next one.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn next(&mut self) -> Done<&'r [u8]> {
        let word = self.request.get(self.at).ok_or(SYNTAX)?;
        self.at += 1;
        Ok(word)
    }

    /// Reads the next one if it is this.
    pub(super) fn takes(&mut self, word: &str) -> bool {
        let is_it = self.request.is(self.at, word);
        self.at += usize::from(is_it);
        is_it
    }

    /// The same; it has to be this.
    ///
    /// # Errors
    /// It is another.
    pub(super) fn expect(&mut self, word: &str) -> Done {
        if self.takes(word) { Ok(()) } else { Err(SYNTAX.into()) }
    }

    /// A number, and that many times `each` words.
    ///
    /// # Errors
    /// There are fewer.
    pub(super) fn list(&mut self, each: usize) -> Done<Vec<&'r [u8]>> {
        let count = usize::try_from(int(self.next()?)?).ok().and_then(|n| n.checked_mul(each));
        let count = count.filter(|n| *n <= self.request.len() - self.at).ok_or(SYNTAX)?;
        (0..count).map(|_| self.next()).collect()
    }

    /// A number that is not 0.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn positive(&mut self) -> Done<usize> {
        let n = int(self.next()?)?;
        Ok(usize::try_from(n).ok().filter(|n| *n > 0).ok_or("ERR value is out of range, must be positive")?)
    }
}
