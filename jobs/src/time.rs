//! The clock, and times as text: RFC 3339 in UTC, as in all files of a run.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Length in bytes of a time as [`rfc3339`] writes it.
const LENGTH: usize = 24;

/// Returns the current time of the monotonic clock. Loops and waits read it here; state machines
/// take the time as an argument.
#[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
pub fn now() -> Instant {
    Instant::now()
}

/// A time written by [`rfc3339`], in milliseconds since 1970. Invalid text gives the earliest time,
/// 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Parses a time such as `2026-11-21T10:15:30.125Z`.
    pub fn parse(text: &str) -> Self {
        let has_length = text.len() == LENGTH && text.ends_with('Z');
        let at = has_length.then(|| text.parse::<Timestamp>().ok()).flatten();
        let millis = at.and_then(|at| u64::try_from(at.as_millisecond()).ok());
        Self(millis.unwrap_or_default())
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
    local_as("%Y-%m-%d_%H:%M:%S", seconds)
}

/// Formats a time written by [`rfc3339`] as `2026-11-21 06:10` in the time zone of this machine, or
/// with a `Z` in UTC if the zone is unknown. An invalid time is returned unchanged.
pub fn local_minute(at: &str) -> String {
    let moment = Moment::parse(at);
    match moment.is_known() {
        true => local_as("%Y-%m-%d %H:%M", moment.0 / 1000),
        false => at.to_owned(),
    }
}

fn local_as(format: &str, seconds: u64) -> String {
    let at = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH);
    match TimeZone::try_system() {
        Ok(zone) => at.to_zoned(zone).strftime(format).to_string(),
        Err(_) => format!("{}Z", at.strftime(format)),
    }
}

/// Formats a time as RFC 3339 in UTC with milliseconds, `2026-11-21T10:15:30.125Z`.
pub fn rfc3339(at: SystemTime) -> String {
    let at = Timestamp::try_from(at).unwrap_or(Timestamp::MAX);
    format!("{:.3}", at.max(Timestamp::UNIX_EPOCH))
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

    #[test]
    fn a_local_minute_is_a_local_time_without_seconds() {
        let text = local_minute("2026-11-21T10:15:30.125Z");
        assert!(
            local(1_795_256_130)
                .replace('_', " ")
                .starts_with(text.trim_end_matches('Z'))
        );
        assert_eq!(text.trim_end_matches('Z').len(), "2026-11-21 10:15".len());
        assert_eq!(local_minute("soon"), "soon");
    }

    proptest! {
        #[test]
        fn a_moment_that_was_written_is_read(millis in 1u64..253_402_207_200_000) {
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
        assert_eq!(later.since(Moment::default()), 0.0);
        assert!(!(Moment::parse("soon").is_known()));
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
            let exact = UNIX_EPOCH + Duration::from_millis(millis);
            let later = exact + Duration::from_nanos(999_999);
            assert_eq!([rfc3339(exact), rfc3339(later)], [text; 2]);
        }
    }
}
