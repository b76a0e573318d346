//! Decodes and encodes what replication sends and stores. Numbers are little-endian. Strings follow their
//! lengths.
//!
//! Reading stops at the end, and allocates nothing for an unchecked length.

/// Bytes that cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Reads values one after the other.
#[derive(Clone, Copy)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts at the beginning.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    /// Returns the number of bytes left.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// Reads the next bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Broken("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// Reads a byte.
    pub fn u8(&mut self) -> Result<u8, Broken> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads a number of four bytes.
    pub fn u32(&mut self) -> Result<u32, Broken> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads a number of eight bytes.
    pub fn u64(&mut self) -> Result<u64, Broken> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a string with its length.
    pub fn string(&mut self) -> Result<&'a [u8], Broken> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    /// Reads a text with its length.
    pub fn text(&mut self) -> Result<&'a str, Broken> {
        std::str::from_utf8(self.string()?).map_err(|_| Broken("a text is not UTF-8"))
    }
}

/// Writes a string with its length. No key, value or name comes near 4 GiB.
pub fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}
