//! Formats numbers with their units, and words, for readers. There is a narrow no-break space
//! before a unit and between thousands, which tables for the terminal replace.

use serde::Serialize;

/// The narrow no-break space.
pub const THIN: char = '\u{202f}';

/// Formats a variant of an enum by the word that it has in JSON.
pub fn word(variant: impl Serialize) -> String {
    let word = serde_json::to_value(variant).unwrap_or_default();
    debug_assert!(word.is_string(), "a variant is written as a word: {word}");
    word.as_str().unwrap_or_default().to_owned()
}

/// Formats a count as `1 234 567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(THIN);
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun, as in `1 episode` or `2 episodes`.
pub fn counted(value: u64, one: &str, more: &str) -> String {
    format!("{} {}", count(value), if value == 1 { one } else { more })
}

/// Formats a share of 1 as `64.6 %`; only exact values give `0 %` and `100 %`.
pub fn percent(share: f64) -> String {
    match share {
        0.0 => format!("0{THIN}%"),
        1.0 => format!("100{THIN}%"),
        _ => format!("{:.1}{THIN}%", share * 100.0),
    }
}

/// Formats a share of 1 for the terminal, as `64.6 %`: always with a decimal, so that a column of
/// them is even, and with a plain space.
pub fn tenths(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats an interval of shares as `56.5 to 71.9 %`.
pub fn interval([low, high]: [f64; 2]) -> String {
    format!("{:.1} to {:.1}{THIN}%", low * 100.0, high * 100.0)
}

/// Formats a difference of shares in percentage points, as `+12.5`.
pub fn points(difference: f64) -> String {
    format!("{:+.1}", difference * 100.0)
}

/// Formats an interval of a difference, as `-6.8 to +30.7`.
pub fn points_interval([low, high]: [f64; 2]) -> String {
    format!("{} to {}", points(low), points(high))
}

/// Formats a p-value, as `0.3018` or `1.2e-6`.
pub fn p_value(p: f64) -> String {
    if p < 1e-4 {
        format!("{p:.1e}")
    } else {
        format!("{p:.4}")
    }
}

/// Formats seconds as `47.4 s`, `3 min 12 s`, `2 h 05 min` or `1 d 03 h`.
pub fn seconds(value: f64) -> String {
    if value < 59.95 {
        return format!("{}{THIN}s", digits(value));
    }
    let whole = value.round() as u64;
    match whole {
        0..3600 => format!("{}{THIN}min {:02}{THIN}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}{THIN}h {:02}{THIN}min", whole / 3600, whole / 60 % 60),
        _ => format!("{}{THIN}d {:02}{THIN}h", whole / 86_400, whole / 3600 % 24),
    }
}

/// Formats milliseconds without the unit, which the column heading has.
pub fn millis(value: f64) -> String {
    match value {
        ..0.01 if value > 0.0 => "< 0.01".replace(' ', &THIN.to_string()),
        _ => digits(value),
    }
}

/// Formats bytes as `271 MiB` or `3.2 GiB`.
pub fn bytes(value: u64) -> String {
    let mebi = value as f64 / f64::from(1 << 20);
    if mebi < 1000.0 {
        format!("{}{THIN}MiB", digits(mebi))
    } else {
        format!("{}{THIN}GiB", digits(mebi / 1024.0))
    }
}

/// Formats a number with three significant digits, and at most two decimals.
pub fn digits(value: f64) -> String {
    let sign = if value < 0.0 { "−" } else { "" };
    match value.abs() {
        size @ ..9.995 => format!("{sign}{size:.2}"),
        size @ ..99.95 => format!("{sign}{size:.1}"),
        size @ ..999.5 => format!("{sign}{size:.0}"),
        // Larger numbers are easier to read with an exponent.
        size @ ..1e15 => format!("{sign}{}", count(size.round() as u64)),
        _ => format!("{value:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        text.replace(THIN, " ")
    }

    #[test]
    fn differences_have_signs_and_small_p_values_an_exponent() {
        assert_eq!(points_interval([-0.0684, 0.307]), "-6.8 to +30.7");
        assert_eq!([p_value(0.30177), p_value(1.23e-6)], ["0.3018", "1.2e-6"]);
    }

    #[test]
    fn numbers_have_their_units() {
        for (found, wanted) in [
            (count(0), "0"),
            (count(999), "999"),
            (count(1_000_000), "1 000 000"),
            (counted(1, "job", "jobs"), "1 job"),
            (counted(1200, "job", "jobs"), "1 200 jobs"),
            (percent(0.6458), "64.6 %"),
            (percent(1.0), "100 %"),
            (percent(0.0), "0 %"),
            (percent(0.99999), "100.0 %"),
            (interval([0.5648, 0.7192]), "56.5 to 71.9 %"),
            (seconds(0.0), "0.00 s"),
            (seconds(47.43), "47.4 s"),
            (seconds(59.96), "1 min 00 s"),
            (seconds(3599.7), "1 h 00 min"),
            (seconds(97_200.0), "1 d 03 h"),
            (millis(0.001), "< 0.01"),
            (millis(0.0), "0.00"),
            (millis(10.801), "10.8"),
            (millis(1234.5), "1 235"),
            (digits(-0.5), "−0.50"),
            (digits(-1234.5), "−1 235"),
            (digits(f64::NAN), "NaN"),
            (digits(1e300), "1e300"),
            (bytes(283_766_784), "271 MiB"),
            (bytes(5 << 30), "5.00 GiB"),
        ] {
            assert_eq!(plain(&found), wanted);
        }
    }
}
