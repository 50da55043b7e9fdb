//! An amount of memory of which not everything need be known.

use std::ops::{Add, AddAssign, Mul};

use serde::Serialize;

use super::bytes::ByteSize;

/// An amount, and how well it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What is known or estimated.
    pub bytes: ByteSize,
    /// What of it is certain: weights by the headers of their files, environments by declaration or measurement.
    pub certain: ByteSize,
    /// There is more, and nobody knows how much.
    pub has_unknown: bool,
}

impl Part {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { bytes: ByteSize(0), certain: ByteSize(0), has_unknown: true };

    /// Known for certain.
    pub fn certain(bytes: u64) -> Self {
        Self { bytes: ByteSize(bytes), certain: ByteSize(bytes), has_unknown: false }
    }

    /// Estimated.
    pub fn estimated(bytes: u64) -> Self {
        Self { bytes: ByteSize(bytes), ..Self::default() }
    }

    /// In words: `5.9 GiB`, `unknown`, `5.9 GiB + ?`.
    pub fn text(&self) -> String {
        match (self.bytes.0, self.has_unknown) {
            (0, true) => "unknown".to_owned(),
            (_, true) => format!("{} + ?", self.bytes),
            (_, false) => self.bytes.to_string(),
        }
    }
}

impl Add for Part {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let sum = |a: ByteSize, b: ByteSize| ByteSize(a.0.saturating_add(b.0));
        Self {
            bytes: sum(self.bytes, other.bytes),
            certain: sum(self.certain, other.certain),
            has_unknown: self.has_unknown || other.has_unknown,
        }
    }
}

impl AddAssign for Part {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Part {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        let product = |size: ByteSize| ByteSize(size.0.saturating_mul(times));
        Self { bytes: product(self.bytes), certain: product(self.certain), has_unknown: self.has_unknown && times > 0 }
    }
}
