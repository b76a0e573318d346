//! Which values are stored in blob files.

/// Which values are stored in blob files: see [`Builder::blobs`](crate::Builder::blobs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blobs {
    /// None: tables hold all values.
    Never,
    /// Those of this many bytes and more. Empty values are always in tables.
    From(usize),
}

impl Blobs {
    /// The rule with this smallest size, as [`limit`](Self::limit) returns it.
    pub(crate) fn of_limit(limit: Option<usize>) -> Self {
        limit.map_or(Blobs::Never, Blobs::From)
    }

    /// Returns the size in bytes of the smallest value that is stored in a blob file.
    pub(crate) fn limit(self) -> Option<usize> {
        match self {
            Blobs::Never => None,
            Blobs::From(bytes) => Some(bytes.max(1)),
        }
    }
}
