//! What rows say of the page cache that they begin with.

/// Why a row that has to begin with an empty page cache has no value.
pub(super) const NOT_COLD: &str =
    "the page cache could not be dropped (/proc/sys/vm/drop_caches takes a privilege)";
/// The note of a row that could do without.
pub(super) const NOT_EMPTY: &str = "began with whatever the page cache held: it could not be dropped";
