//! Bytes that were received and not parsed yet.

/// A buffer that is filled at its end and emptied at its beginning.
#[derive(Debug, Default)]
pub struct Input {
    bytes: Vec<u8>,
    start: usize,
}

/// A buffer of more bytes is given back when it is empty.
const KEPT_BYTES_MAX: usize = 64 << 10;

impl Input {
    /// What is not parsed yet.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// So many bytes are parsed.
    pub fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.bytes.len());
        if self.start == self.bytes.len() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
    }

    /// Where to read more into. What was parsed is dropped first, where it is at least half of what is there.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        if self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        &mut self.bytes
    }

    /// How much memory it takes.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}
