//! Reads the words of a request in order.

use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::int;

/// The unread words of a request.
pub(super) struct Words<'r> {
    request: &'r Request,
    at: usize,
}

impl<'r> Words<'r> {
    /// Starts at a position.
    pub(super) fn new(request: &'r Request, at: usize) -> Self {
        Words { request, at }
    }

    /// Returns whether all words were read.
    pub(super) fn is_over(&self) -> bool {
        self.at >= self.request.len()
    }

    /// Reads the next word.
    ///
    /// # Errors
    /// Fails if there is none.
    pub(super) fn next(&mut self) -> Done<&'r [u8]> {
        let word = self.request.get(self.at).ok_or(SYNTAX)?;
        self.at += 1;
        Ok(word)
    }

    /// Reads the next word if it equals `word`. Returns whether it does.
    pub(super) fn takes(&mut self, word: &str) -> bool {
        let is_it = self.request.is(self.at, word);
        self.at += usize::from(is_it);
        is_it
    }

    /// Reads the next word, which must equal `word`.
    ///
    /// # Errors
    /// Fails if it does not.
    pub(super) fn expect(&mut self, word: &str) -> Done {
        if self.takes(word) { Ok(()) } else { Err(SYNTAX.into()) }
    }

    /// Reads a number, and that many groups of `each` words.
    ///
    /// # Errors
    /// Fails if there are fewer words.
    pub(super) fn list(&mut self, each: usize) -> Done<Vec<&'r [u8]>> {
        let count = usize::try_from(int(self.next()?)?).ok().and_then(|n| n.checked_mul(each));
        let count = count.filter(|n| *n <= self.request.len() - self.at).ok_or(SYNTAX)?;
        (0..count).map(|_| self.next()).collect()
    }

    /// Reads a positive number.
    ///
    /// # Errors
    /// Fails if the word is not one.
    pub(super) fn positive(&mut self) -> Done<usize> {
        let n = int(self.next()?)?;
        Ok(usize::try_from(n).ok().filter(|n| *n > 0).ok_or("ERR value is out of range, must be positive")?)
    }
}
