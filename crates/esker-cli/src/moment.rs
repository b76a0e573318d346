//! Points in time in RFC 3339 format and in seconds since 1970.

use std::time::{Duration, UNIX_EPOCH};

/// Formats a point in time.
pub(crate) fn text_of(seconds: u64) -> String {
    // The last second that the format can represent.
    let seconds = seconds.min(253_402_300_799);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

/// Parses a time in the format of [`text_of`], or a number of seconds.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let of_calendar = |text| humantime::parse_rfc3339(text).ok()?.duration_since(UNIX_EPOCH).ok();
    let found = text.parse().ok().or_else(|| of_calendar(text).map(|since| since.as_secs()));
    found.ok_or_else(|| "a time such as 2026-11-26T20:24:00Z, or seconds since 1970".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, text) in [(0, "1970-01-01T00:00:00Z"), (1_795_724_645, "2026-11-26T20:24:05Z")] {
            assert_eq!(text_of(seconds), text);
            assert_eq!((parse(text), parse(&seconds.to_string())), (Ok(seconds), Ok(seconds)));
        }
        assert_eq!(text_of(u64::MAX), "9999-12-31T23:59:59Z");
        for text in ["", "2026-02-30T00:00:00Z", "2026-11-26", "2026-11-26T20:60:00Z", "-1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
