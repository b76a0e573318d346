//! Texts about the page cache at the start of a row.

/// Why a row that must begin with an empty page cache has no value.
pub(super) const NOT_COLD: &str =
    "the page cache could not be dropped (/proc/sys/vm/drop_caches takes a privilege)";
/// Note of a row that may begin with a filled page cache.
pub(super) const NOT_EMPTY: &str = "began with whatever the page cache held: it could not be dropped";
