//! Formats numbers for readers.

use esker_bench_api::results::Unit;

/// Formats a value with a unit of fitting size.
pub(crate) fn show(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Seconds => seconds(value),
        Unit::Bytes => bytes(value),
        Unit::OpsPerSecond => format!("{}/s", count(value)),
        Unit::BytesPerSecond => format!("{}/s", bytes(value)),
    }
}

/// Formats seconds with three digits, in s, ms, us or ns.
pub(crate) fn seconds(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1.0 => (v, "s"),
        v if v >= 1e-3 => (v * 1e3, "ms"),
        v if v >= 1e-6 => (v * 1e6, "us"),
        v => (v * 1e9, "ns"),
    };
    format!("{} {unit}", three_digits(scaled))
}

/// Formats bytes with three digits, in MiB, or KiB below one MiB.
pub(crate) fn bytes(value: f64) -> String {
    let mib = value / f64::from(1 << 20);
    if mib >= 1.0 {
        format!("{} MiB", three_digits(mib))
    } else {
        format!("{} KiB", three_digits(mib * 1024.0))
    }
}

/// The same, with a dash for zero, which stands for an unknown number.
pub(crate) fn known_bytes(value: f64) -> String {
    if value > 0.0 { bytes(value) } else { "-".to_owned() }
}

/// Formats a figure by its name: bytes, rates, times and plain numbers.
pub(crate) fn figure(name: &str, value: f64) -> String {
    if name.ends_with("bytes") {
        bytes(value)
    } else if name.contains("ops/s") {
        show(value, Unit::OpsPerSecond)
    } else if name.ends_with(" s") {
        seconds(value)
    } else if value >= 100.0 {
        count(value)
    } else {
        format!("{value:.3}")
    }
}

/// Formats a count with three digits, with M or k for large ones.
pub(crate) fn count(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} M", three_digits(v / 1e6)),
        v if v >= 1e4 => format!("{} k", three_digits(v / 1e3)),
        v => three_digits(v),
    }
}

/// Formats a time in seconds since 1970, UTC, as its day: 2026-11-22.
pub(crate) fn date(unix_s: u64) -> String {
    // Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days: years begin in March,
    // and eras have 400 years.
    let days = unix_s / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

/// Formats a factor.
pub(crate) fn times(ratio: f64) -> String {
    if ratio < 9_999.5 { three_digits(ratio) } else { count(ratio) }
}

fn three_digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [(123.4, "123 s"), (1.234, "1.23 s"), (0.0999, "99.9 ms"), (2.5e-7, "250 ns")] {
            assert_eq!(show(value, Unit::Seconds), text);
        }
        assert_eq!(show(1.5 * 1024.0 * 1024.0, Unit::Bytes), "1.50 MiB");
        assert_eq!(show(0.0, Unit::Bytes), "0.00 KiB");
        assert_eq!((known_bytes(0.0).as_str(), known_bytes(1024.0).as_str()), ("-", "1.00 KiB"));
    }

    #[test]
    fn days_of_leap_years_and_turns_of_years() {
        for (unix_s, day) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_795_360_870, "2026-11-22"),
            (1_798_761_599, "2026-12-31"),
            (1_798_761_600, "2027-01-01"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(unix_s), day);
        }
    }

    #[test]
    fn figures_are_formatted_by_their_names() {
        for (name, value, text) in [
            ("hit rate", 0.634, "0.634"),
            ("file length bytes", 3e6, "2.86 MiB"),
            ("wall ops/s", 123_456.0, "123 k/s"),
            ("load s", 0.25, "250 ms"),
            ("start lateness p50 s", 55e-6, "55.0 us"),
            ("items when it began", 1_000_000.0, "1.00 M"),
        ] {
            assert_eq!(figure(name, value), text);
        }
    }
}
