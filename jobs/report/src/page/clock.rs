//! Formats times in the local time zone.
//!
//! Files have times in UTC, but people remember local times. The whole page has a single UTC
//! offset, that of the start of the run, and names it: so a change of daylight saving time during a
//! run does not bend the time axis.

use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, civil::DateTime};

/// Possible steps between the ticks of a time axis, in seconds.
const STEPS: &[i64] = &[
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800,
];

/// A time zone with a fixed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    offset: Offset,
    /// Name of the zone, as in `UTC+01:00 (CET)`.
    name: String,
}

impl Zone {
    /// Returns the zone of this machine at a time written by [`jobs::time::rfc3339`].
    pub fn here(at: &str) -> Self {
        Self::at(&TimeZone::system(), at)
    }

    /// Returns UTC.
    pub fn utc() -> Self {
        Self::at(&TimeZone::UTC, "")
    }

    fn at(zone: &TimeZone, at: &str) -> Self {
        let info = zone.to_offset_info(at.parse().unwrap_or(Timestamp::UNIX_EPOCH));
        let offset = info.offset();
        let seconds = offset.seconds();
        let (sign, minutes) = (if seconds < 0 { '−' } else { '+' }, seconds.abs() / 60);
        let mut name = "UTC".to_owned();
        if seconds != 0 {
            name.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
        // Many zones have no abbreviation except their offset.
        if info.abbreviation().starts_with(char::is_alphabetic) && info.abbreviation() != "UTC" {
            name.push_str(&format!(" ({})", info.abbreviation()));
        }
        Self { offset, name }
    }

    /// Returns the name, as in `UTC+01:00 (CET)`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Formats a time as `21 November 2026, 15:59`; an invalid time is returned unchanged.
    pub(super) fn long(&self, at: &str) -> String {
        self.text(at, "%-d %B %Y, %H:%M")
    }

    /// Formats a time as `15:59:07`.
    pub(super) fn time(&self, at: &str) -> String {
        self.text(at, "%H:%M:%S")
    }

    fn text(&self, at: &str, format: &str) -> String {
        match millis(at) {
            Some(at) => self.civil(at).strftime(format).to_string(),
            None => at.to_owned(),
        }
    }

    fn civil(&self, at_ms: i64) -> DateTime {
        self.offset
            .to_datetime(Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// Returns at most `most` ticks between two times (milliseconds since 1970), at round local
    /// times, with their labels. The first label and the first of each day have the date.
    pub(super) fn ticks(&self, from_ms: i64, to_ms: i64, most: i64) -> Vec<(i64, String)> {
        let span = (to_ms - from_ms).max(1);
        let coarsest = STEPS[STEPS.len() - 1] * 1000;
        let fits = |step: &i64| span / step < most;
        let step = STEPS
            .iter()
            .map(|step| step * 1000)
            .find(fits)
            .unwrap_or(coarsest * (span / coarsest / most + 1));
        let shift = i64::from(self.offset.seconds()) * 1000;
        let first = (from_ms + shift + step - 1).div_euclid(step);
        let mut day = None;
        let label = |at: i64| {
            let civil = self.civil(at);
            let before = day.replace(civil.date());
            let is_next_day = before.is_some_and(|day| day != civil.date());
            let format = match step {
                _ if is_next_day => "%-d %b",
                ..60_000 => "%H:%M:%S",
                60_000..86_400_000 => "%H:%M",
                _ => "%-d %b",
            };
            (at, civil.strftime(format).to_string())
        };
        (first..)
            .map(|tick| tick * step - shift)
            .take_while(|at| *at <= to_ms)
            .map(label)
            .collect()
    }
}

/// Parses a time of [`jobs::time::rfc3339`] to milliseconds since 1970.
pub(super) fn millis(at: &str) -> Option<i64> {
    Some(at.parse::<Timestamp>().ok()?.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin(at: &str) -> Zone {
        Zone::at(&TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap(), at)
    }

    #[test]
    fn a_zone_is_named_with_its_offset() {
        let (winter, summer) = ("2026-11-21T14:59:07.263Z", "2026-07-21T14:59:07.263Z");
        assert_eq!(berlin(winter).name(), "UTC+01:00 (CET)");
        assert_eq!(berlin(summer).name(), "UTC+02:00 (CEST)");
        let newfoundland = Zone::at(&TimeZone::posix("<-0330>3:30").unwrap(), "");
        assert_eq!(newfoundland.name(), "UTC−03:30");
        assert_eq!(Zone::utc().name(), "UTC");
    }

    #[test]
    fn moments_are_read_in_the_zone() {
        let at = "2026-11-21T23:59:07.263Z";
        assert_eq!(Zone::utc().long(at), "21 November 2026, 23:59");
        assert_eq!(berlin(at).long(at), "22 November 2026, 00:59");
        assert_eq!(berlin(at).time(at), "00:59:07");
        assert_eq!(berlin(at).time("<b>"), "<b>");
    }

    #[test]
    fn ticks_are_round_times_of_the_zone() {
        let zone = Zone::at(&TimeZone::posix("<+0545>-5:45").unwrap(), "");
        let from = millis("2026-11-21T14:59:07Z").unwrap();
        let labels = |to: &str, most| -> Vec<_> {
            zone.ticks(from, millis(to).unwrap(), most)
                .into_iter()
                .map(|(_, label)| label)
                .collect()
        };
        let wanted = ["20:44:10", "20:44:20", "20:44:30", "20:44:40", "20:44:50"];
        assert_eq!(labels("2026-11-21T14:59:54Z", 6), wanted);
        let expected = ["22:00", "22 Nov", "02:00", "04:00", "06:00", "08:00"];
        assert_eq!(labels("2026-11-22T02:59:00Z", 6), expected);
        let found = labels("2026-11-25T02:59:00Z", 6);
        assert_eq!(found, ["22 Nov", "23 Nov", "24 Nov", "25 Nov"]);
        assert!(labels("2036-11-25T02:59:00Z", 6).len() <= 6);
    }

    #[test]
    fn an_axis_without_length_has_at_most_one_tick() {
        assert!(Zone::utc().ticks(1000, 1000, 6).len() <= 1);
        assert!(Zone::utc().ticks(1000, 0, 6).is_empty());
    }
}
