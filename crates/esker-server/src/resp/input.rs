//! Received bytes that are not parsed yet.

/// A buffer that is filled at its end and consumed at its start.
#[derive(Debug, Default)]
pub struct Input {
    bytes: Vec<u8>,
    start: usize,
}

/// A larger buffer is freed once it is empty.
const KEPT_BYTES_MAX: usize = 64 << 10;

impl Input {
    /// What is not parsed yet.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Marks bytes as parsed.
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

    /// Returns the buffer to read more into. Parsed bytes are dropped first if they are at least half of it.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        if self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        &mut self.bytes
    }

    /// Memory that it takes.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}
