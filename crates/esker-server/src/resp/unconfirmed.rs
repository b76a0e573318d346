//! Which replies belong to writes that replicas have not confirmed.

use std::ops::Range;

/// The places of replies to writes among the bytes of all replies, in order.
#[derive(Debug, Default)]
pub struct Unconfirmed(Vec<Range<usize>>);

impl Unconfirmed {
    /// Adds a reply.
    pub fn add(&mut self, reply: Range<usize>) {
        self.0.push(reply);
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds later replies, which are moved by this many bytes.
    pub fn append(&mut self, later: &mut Unconfirmed, by: usize) {
        self.0.extend(later.0.drain(..).map(|reply| reply.start + by..reply.end + by));
    }

    /// Removes all, and puts an error in the place of each. Returns their number.
    pub fn replace(&mut self, bytes: &mut Vec<u8>, error: &[u8]) -> usize {
        let old = std::mem::take(bytes);
        let mut at = 0;
        for reply in &self.0 {
            bytes.extend_from_slice(&old[at..reply.start]);
            bytes.extend_from_slice(error);
            at = reply.end;
        }
        bytes.extend_from_slice(&old[at..]);
        std::mem::take(&mut self.0).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_replies_to_writes_are_replaced() {
        let mut first = Unconfirmed::default();
        let mut bytes = b"+a\r\n+OK\r\n+b\r\n".to_vec();
        first.add(4..9);
        let mut second = Unconfirmed::default();
        second.add(0..4);
        second.add(4..8);
        first.append(&mut second, bytes.len());
        bytes.extend_from_slice(b":1\r\n:2\r\n$-1\r\n");
        assert!(second.is_empty());
        assert_eq!(first.replace(&mut bytes, b"-E\r\n"), 3);
        assert_eq!(bytes, b"+a\r\n-E\r\n+b\r\n-E\r\n-E\r\n$-1\r\n");
        assert_eq!(first.replace(&mut bytes, b"-E\r\n"), 0);
    }
}
