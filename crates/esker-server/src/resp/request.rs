//! A request: the name of a command and its arguments, in one buffer.

use std::ops::Index;

/// The words of a request. Index 0 is the command's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    data: Vec<u8>,
    ends: Vec<usize>,
    /// Index of its command in the table of the server, once it was looked up.
    pub command: Option<u16>,
}

/// Larger buffers are freed after the request.
const KEPT_BYTES_MAX: usize = 16 << 10;

impl Request {
    /// A request with these words.
    pub fn of<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Self {
        let mut request = Request::default();
        words.into_iter().for_each(|word| request.push(word.as_ref()));
        request
    }

    /// Adds a word.
    pub fn push(&mut self, word: &[u8]) {
        self.data.extend_from_slice(word);
        self.ends.push(self.data.len());
    }

    /// Removes all words. Keeps small buffers.
    pub fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
        self.command = None;
        if self.data.capacity() > KEPT_BYTES_MAX {
            *self = Request::default();
        }
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The word at an index, if there is one.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends.get(at)?;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        Some(&self.data[start..end])
    }

    /// The words from an index on.
    pub fn from(&self, first: usize) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        (first.min(self.len())..self.len()).map(|at| &self[at])
    }

    /// The words from an index on, as a list.
    pub fn tail(&self, first: usize) -> Vec<&[u8]> {
        self.from(first).collect()
    }

    /// Returns whether a word equals this one, ignoring case.
    pub fn is(&self, at: usize, word: &str) -> bool {
        self.get(at).is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Memory that its words take.
    pub fn bytes(&self) -> usize {
        self.data.len() + size_of_val(&*self.ends)
    }
}

impl Index<usize> for Request {
    type Output = [u8];

    /// # Panics
    /// If there is no such word. The arity of a command is checked before.
    fn index(&self, at: usize) -> &[u8] {
        self.get(at).expect("the arity of a command says how many words there are")
    }
}
