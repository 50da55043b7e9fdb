//! Times as text: RFC 3339 in UTC, as in all files of a run.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A time written by [`rfc3339`], in milliseconds since 1970. Invalid text gives the earliest time,
/// 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Parses a time such as `2026-11-21T10:15:30.125Z`.
    pub fn parse(text: &str) -> Self {
        millis(text.as_bytes()).map_or_else(Self::default, Self)
    }

    /// Returns whether the time was valid.
    pub fn is_known(self) -> bool {
        self.0 > 0
    }

    /// Returns the time as text; empty if it was invalid.
    pub fn text(self) -> String {
        if self.is_known() {
            rfc3339(UNIX_EPOCH + Duration::from_millis(self.0))
        } else {
            String::new()
        }
    }

    /// Returns the time this many seconds earlier.
    #[must_use]
    pub fn minus(self, seconds: f64) -> Self {
        // A negative or infinite number of seconds counts as none.
        Self(self.0.saturating_sub((seconds * 1e3) as u64))
    }

    /// Returns the seconds since an earlier time; 0 if one of them is invalid, or `earlier` is
    /// later.
    pub fn since(self, earlier: Self) -> f64 {
        if self.is_known() && earlier.is_known() {
            self.0.saturating_sub(earlier.0) as f64 / 1e3
        } else {
            0.0
        }
    }
}

/// Formats seconds since 1970 as `2026-11-21_06:10:42` in the time zone of this machine (`TZ`, else
/// `/etc/localtime`). If the zone is unknown, the time is UTC and ends in `Z`.
pub fn local(seconds: u64) -> String {
    let at = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH);
    match TimeZone::try_system() {
        Ok(zone) => at.to_zoned(zone).strftime("%Y-%m-%d_%H:%M:%S").to_string(),
        Err(_) => at.strftime("%Y-%m-%d_%H:%M:%SZ").to_string(),
    }
}

fn millis(text: &[u8]) -> Option<u64> {
    let at = |range: std::ops::Range<usize>| {
        text.get(range)?
            .iter()
            .try_fold(0, |number: u64, digit| match digit {
                b'0'..=b'9' => Some(number * 10 + u64::from(digit - b'0')),
                _ => None,
            })
    };
    let marks = [
        (4, b'-'),
        (7, b'-'),
        (10, b'T'),
        (13, b':'),
        (16, b':'),
        (19, b'.'),
        (23, b'Z'),
    ];
    if text.len() != 24 || marks.iter().any(|(place, mark)| text[*place] != *mark) {
        return None;
    }
    let days = days(at(0..4)?, at(5..7)?, at(8..10)?)?;
    let seconds = days * 86_400 + at(11..13)? * 3600 + at(14..16)? * 60 + at(17..19)?;
    Some(seconds * 1000 + at(20..23)?)
}

/// Returns the days since 1970-01-01, the inverse of [`civil`].
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    Some(
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year
            - 719_468,
    )
}

/// Formats a time as RFC 3339 in UTC with milliseconds, `2026-11-21T10:15:30.125Z`.
pub fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        since.subsec_millis()
    )
}

/// Converts days since 1970-01-01 to year, month and day. Internally a year begins in March, so
/// that the leap day is its last.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_local_time_has_the_form_of_torchrun_s_report() {
        let text = local(1_795_233_885);
        let digits = text
            .trim_end_matches('Z')
            .replace(|c: char| c.is_ascii_digit(), "0");
        assert_eq!(digits, "0000-00-00_00:00:00");
        assert!(text.starts_with("2026-11-2"), "{text}");
    }

    proptest! {
        #[test]
        fn a_moment_that_was_written_is_read(millis in 1u64..253_402_300_800_000) {
            let text = rfc3339(UNIX_EPOCH + Duration::from_millis(millis));
            prop_assert_eq!((Moment::parse(&text), Moment::parse(&text).text()), (Moment(millis), text));
        }

        #[test]
        fn any_text_is_read_to_something(text in "\\PC{0,30}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}.[0-9]{3}Z") {
            let moment = Moment::parse(&text);
            prop_assert!(moment.is_known() || moment.text().is_empty());
        }
    }

    #[test]
    fn seconds_between_moments_are_known_only_where_both_are() {
        let [first, later] =
            ["2026-11-21T10:00:00.125Z", "2026-11-21T10:01:00.375Z"].map(Moment::parse);
        assert_eq!((later.since(first), first.since(later)), (60.25, 0.0));
        assert_eq!(
            (
                later.since(Moment::default()),
                Moment::parse("soon").is_known()
            ),
            (0.0, false)
        );
    }

    #[test]
    fn known_moments_are_written_as_date_does() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_795_255_200_125, "2026-11-21T10:00:00.125Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(millis)), text);
        }
    }
}
