//! The names of the log's files: `000007.wal` is segment 7, `wal-spare-3.tmp` a prepared file without a number yet.
//!
//! Segment numbers are the log's own: they are not drawn from the file ids of tables and manifests.

use std::path::{Path, PathBuf};

const SEGMENT_SUFFIX: &str = ".wal";
const SPARE_PREFIX: &str = "wal-spare-";
const SPARE_SUFFIX: &str = ".tmp";

/// `000007.wal`.
pub fn segment_file_name(number: u64) -> String {
    format!("{number:06}{SEGMENT_SUFFIX}")
}

/// The segment number in a name that [`segment_file_name`] makes.
pub fn parse_segment(name: &str) -> Option<u64> {
    let number = name.strip_suffix(SEGMENT_SUFFIX)?.parse().ok()?;
    (segment_file_name(number) == name).then_some(number)
}

/// Whether the name is a spare's: left over from a crash if no log is open.
pub fn is_spare(name: &str) -> bool {
    name.strip_prefix(SPARE_PREFIX)
        .and_then(|rest| rest.strip_suffix(SPARE_SUFFIX))
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The path of a segment.
pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(segment_file_name(number))
}

/// The path of a spare.
pub(super) fn spare_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{SPARE_PREFIX}{number}{SPARE_SUFFIX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_strangers_are_left_alone() {
        for number in [0, 7, 999_999, 1_000_000, u64::MAX] {
            assert_eq!(parse_segment(&segment_file_name(number)), Some(number));
        }
        assert_eq!(segment_file_name(7), "000007.wal");
        for other in
            ["7.wal", "+00007.wal", "000007.sst", ".wal", "0000007.wal", "99999999999999999999999.wal"]
        {
            assert_eq!(parse_segment(other), None, "{other}");
        }
        assert!(
            is_spare("wal-spare-12.tmp") && spare_path(Path::new("d"), 12) == Path::new("d/wal-spare-12.tmp")
        );
        assert!(!is_spare("wal-spare-.tmp") && !is_spare("wal-spare-x.tmp") && !is_spare("wal-spare-1"));
    }
}
