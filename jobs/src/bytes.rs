//! Parses amounts of memory: `12GiB`, `12GB`, `12288MiB`, `12884901888`.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

const GIB: f64 = (1_u64 << 30) as f64;

/// The smallest number without a unit that is taken as bytes. A smaller one lacks its unit, as in
/// `--gpu-memory 16`.
const FEWEST_BARE: u64 = 1 << 20;

/// An amount of memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

/// Names of units in lower case, and their bytes. `G` alone is 2^30, as in `--mem` of SLURM and
/// `-m` of docker.
const UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
];

impl ByteSize {
    /// Returns the amount in GiB.
    pub fn gib(self) -> f64 {
        self.0 as f64 / GIB
    }

    /// Returns the number of bytes, rounded down; `None` if `gib` is not a valid amount.
    pub fn of_gib(gib: f64) -> Option<Self> {
        (gib.is_finite() && (0.0..1e9).contains(&gib)).then_some(Self((gib * GIB) as u64))
    }
}

impl Display for ByteSize {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            bytes if bytes < 1 << 20 => write!(f, "{:.0} KiB", (bytes as f64 / 1024.0).ceil()),
            bytes if bytes < 1 << 30 => write!(f, "{:.0} MiB", bytes as f64 / f64::from(1 << 20)),
            _ => write!(f, "{:.1} GiB", self.gib()),
        }
    }
}

impl FromStr for ByteSize {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let trimmed = text.trim();
        let letters = trimmed
            .find(|letter: char| letter.is_alphabetic())
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(letters);
        let (number, unit) = (number.trim(), unit.to_lowercase());
        let factor = UNITS.iter().find(|(name, _)| *name == unit);
        match factor.and_then(|(_, factor)| amount(number, *factor)) {
            Some(bytes) if unit.is_empty() && bytes < FEWEST_BARE => Err(Refusal::new(
                format_args!("`{text}` is {bytes} bytes; write `{number}GiB` for {number} GiB"),
            )),
            Some(bytes) => Ok(Self(bytes)),
            None => Err(Refusal::new(format_args!(
                "`{text}` is not a size: expected a size above 0 with KiB, MiB, GiB, TiB, KB, MB, \
                 GB or TB, or a number of bytes, for example 12GiB"
            ))),
        }
    }
}

/// Returns `number` units in bytes: whole numbers exactly, fractions rounded down. Returns `None`
/// from 2^63 on, which no machine has.
fn amount(number: &str, unit: u64) -> Option<u64> {
    let is_plain = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let bytes = match number.parse::<u64>() {
        _ if !is_plain => None,
        Ok(whole) => whole.checked_mul(unit),
        // What is too large becomes the largest number.
        Err(_) => Some((number.parse::<f64>().ok()? * unit as f64) as u64),
    };
    bytes.filter(|bytes| (1..1 << 63).contains(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(text: &str) -> Option<u64> {
        text.parse().ok().map(|ByteSize(bytes)| bytes)
    }

    #[test]
    fn sizes_are_read_in_binary_and_decimal_units_or_refused() {
        rig::cases::check("src/bytes.txt", |text| match text.parse() {
            Ok(ByteSize(bytes)) => bytes.to_string(),
            Err(refusal) => refusal.to_string(),
        });
        assert_eq!(bytes(""), None);
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        let shown = [0, 1, 300 << 20, 12 << 30].map(|bytes| ByteSize(bytes).to_string());
        assert_eq!(shown, ["0", "1 KiB", "300 MiB", "12.0 GiB"]);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,20}", number in any::<u64>(), unit in "[KMGTkmgt]?i?[Bb]?") {
            let _ = text.parse::<ByteSize>();
            let _ = format!("{number}{unit}").parse::<ByteSize>();
            let _ = format!("{number}.{number}{unit}").parse::<ByteSize>();
        }

        #[test]
        fn a_number_of_bytes_is_read_as_it_is(number in FEWEST_BARE..1_u64 << 63) {
            prop_assert_eq!(bytes(&number.to_string()), Some(number));
        }
    }
}
