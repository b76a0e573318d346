//! A buffer for a sequence of keys. Keys often share a prefix, so only the rest is copied.

use super::small_copy::copy_small;

/// Initial size: enough for most keys, so that the buffer is allocated once.
const ROOM_BYTES: usize = 64;

/// A key built from parts. Derefs to its bytes.
#[derive(Debug, Default)]
pub(crate) struct KeyRoom {
    /// As long as the longest key so far.
    bytes: Vec<u8>,
    len: usize,
}

impl KeyRoom {
    /// Sets the key to `prefix`.
    pub(crate) fn set_prefix(&mut self, prefix: &[u8]) {
        self.len = 0;
        self.set_suffix(0, prefix, &[]);
    }

    /// Keeps the first `kept` bytes and appends these two parts.
    #[inline(always)]
    pub(crate) fn set_suffix(&mut self, kept: usize, first: &[u8], second: &[u8]) {
        assert!(kept <= self.len, "what is kept is there");
        let middle = kept + first.len();
        let len = middle + second.len();
        if len > self.bytes.len() {
            self.grow(len);
        }
        copy_small(&mut self.bytes[kept..], first);
        copy_small(&mut self.bytes[middle..], second);
        self.len = len;
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        self.bytes.resize(len.max(ROOM_BYTES).next_power_of_two(), 0);
    }
}

impl std::ops::Deref for KeyRoom {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_any_length_follow_each_other() {
        let mut room = KeyRoom::default();
        assert!(room.is_empty());
        let mut rng = fastrand::Rng::with_seed(1);
        for len in [0, 1, 3, 63, 64, 65, 200, 5, 1000, 40] {
            let prefix: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
            room.set_prefix(&prefix);
            assert_eq!(*room, prefix);
            for _ in 0..20 {
                let [first, second] = [5, 300].map(|max| vec![rng.u8(..); rng.usize(..max)]);
                room.set_suffix(len, &first, &second);
                assert_eq!(*room, [&prefix[..], &first, &second].concat());
            }
        }
    }
}
