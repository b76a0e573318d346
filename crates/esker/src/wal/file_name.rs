//! Names of the log's files: `000007.wal` is segment 7, `000008.wal-next` the file that will become segment
//! 8, `wal-spare-3.tmp` a file without a segment number yet.
//!
//! Segment numbers are independent of the file ids of tables and manifests.

use std::path::{Path, PathBuf};

const SEGMENT_SUFFIX: &str = ".wal";
/// Segments of a log without a database.
const STANDALONE_SUFFIX: &str = ".log";
const PREPARED_SUFFIX: &str = ".wal-next";
const SPARE_PREFIX: &str = "wal-spare-";
const SPARE_SUFFIX: &str = ".tmp";
/// Largest segment number that is accepted, so that a next number always exists.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// Returns the file name of a segment, such as `000007.wal`.
pub fn segment_file_name(number: u64) -> String {
    format!("{number:06}{SEGMENT_SUFFIX}")
}

/// Parses the segment number from a name that [`segment_file_name`] made.
pub fn parse_segment(name: &str) -> Option<u64> {
    parse(name, SEGMENT_SUFFIX)
}

/// Parses the segment number from the name of a prepared file.
pub fn parse_prepared(name: &str) -> Option<u64> {
    parse(name, PREPARED_SUFFIX)
}

/// Returns the file name of a segment of a log without a database, such as `000007.log`.
pub(super) fn standalone_file_name(number: u64) -> String {
    format!("{number:06}{STANDALONE_SUFFIX}")
}

/// Parses the segment number from a name that [`standalone_file_name`] made.
pub(super) fn parse_standalone(name: &str) -> Option<u64> {
    parse(name, STANDALONE_SUFFIX)
}

fn parse(name: &str, suffix: &str) -> Option<u64> {
    let number: u64 = name.strip_suffix(suffix)?.parse().ok()?;
    (number <= NUMBER_MAX && format!("{number:06}{suffix}") == name).then_some(number)
}

/// Returns whether the name is that of a spare file. While no log is open, such a file is left over from a
/// crash.
pub fn is_spare(name: &str) -> bool {
    name.strip_prefix(SPARE_PREFIX)
        .and_then(|rest| rest.strip_suffix(SPARE_SUFFIX))
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the path of a segment.
pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(segment_file_name(number))
}

/// Returns the path of the prepared file that will become a segment.
pub(crate) fn prepared_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}{PREPARED_SUFFIX}"))
}

/// Returns the path of a spare file.
pub(super) fn spare_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{SPARE_PREFIX}{number}{SPARE_SUFFIX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_strangers_are_left_alone() {
        for number in [0, 7, 999_999, 1_000_000, NUMBER_MAX] {
            assert_eq!(parse_segment(&segment_file_name(number)), Some(number));
        }
        assert_eq!(parse_segment(&segment_file_name(NUMBER_MAX + 1)), None);
        assert_eq!(segment_file_name(7), "000007.wal");
        assert_eq!(prepared_path(Path::new("d"), 7), Path::new("d/000007.wal-next"));
        assert_eq!((parse_prepared("000007.wal-next"), parse_prepared("7.wal-next")), (Some(7), None));
        assert_eq!((parse_prepared("000007.wal"), parse_segment("000007.wal-next")), (None, None));
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
