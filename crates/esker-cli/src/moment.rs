//! Moments as RFC 3339 writes them, in the time of the calendar that all the world has.
//!
//! The conversions are Howard Hinnant's, "chrono-Compatible Low-Level Date Algorithms": eras of 400 years that begin in March.

/// The text of a moment, in seconds since 1970.
pub(crate) fn text_of(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The moment that a text says, in seconds since 1970: as [`text_of`] writes it, or a number of seconds.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let found = text.parse().ok().or_else(|| of_calendar(text)).filter(|seconds| {
        // What is no day of the calendar becomes another one.
        text.parse::<u64>().is_ok() || text_of(*seconds).eq_ignore_ascii_case(text)
    });
    found.ok_or_else(|| "a moment such as 2026-11-26T20:24:00Z, or seconds since 1970".to_owned())
}

fn of_calendar(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix(['Z', 'z'])?.split_once(['T', 't'])?;
    let numbers = |text: &str, between: char| -> Option<[u64; 3]> {
        let parts: Option<Vec<u64>> = text.split(between).map(|part| part.parse().ok()).collect();
        parts?.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(time, ':')?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    let of_day = hour.checked_mul(3_600)?.checked_add(minute.checked_mul(60)?)?.checked_add(second)?;
    (of_day < 86_400).then_some(days * 86_400 + of_day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_795_724_645, "2026-11-26T20:24:05Z"),
        ] {
            assert_eq!(text_of(seconds), text);
            assert_eq!((parse(text), parse(&seconds.to_string())), (Ok(seconds), Ok(seconds)));
        }
        for text in
            ["", "2026-02-30T00:00:00Z", "2026-11-26", "2026-11-26T20:60:00Z", "2026-1-1T0:0:0Z", "-1"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
