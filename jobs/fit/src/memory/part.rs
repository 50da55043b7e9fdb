//! An amount of memory that may be partly unknown.

use std::ops::{Add, AddAssign, Mul};

use jobs::bytes::ByteSize;
use serde::Serialize;

/// An amount of memory, and how certain it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryAmount {
    /// The known or estimated bytes.
    pub bytes: ByteSize,
    /// The certain part of these bytes: weights by the headers of their files, environments by
    /// declaration or measurement.
    pub certain: ByteSize,
    /// Whether there is an additional unknown amount.
    pub has_unknown: bool,
}

impl MemoryAmount {
    /// An amount of which nothing is known.
    pub const UNKNOWN: Self = Self {
        bytes: ByteSize(0),
        certain: ByteSize(0),
        has_unknown: true,
    };

    /// Creates a certain amount.
    pub fn certain(bytes: u64) -> Self {
        Self {
            bytes: ByteSize(bytes),
            certain: ByteSize(bytes),
            has_unknown: false,
        }
    }

    /// Creates an estimated amount.
    pub fn estimated(bytes: u64) -> Self {
        Self {
            bytes: ByteSize(bytes),
            ..Self::default()
        }
    }

    /// Formats the amount as `5.9 GiB`, `unknown` or `5.9 GiB + ?`.
    pub fn text(&self) -> String {
        match (self.bytes.0, self.has_unknown) {
            (0, true) => "unknown".to_owned(),
            (_, true) => format!("{} + ?", self.bytes),
            (_, false) => self.bytes.to_string(),
        }
    }
}

impl Add for MemoryAmount {
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

impl AddAssign for MemoryAmount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for MemoryAmount {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        let product = |size: ByteSize| ByteSize(size.0.saturating_mul(times));
        Self {
            bytes: product(self.bytes),
            certain: product(self.certain),
            has_unknown: self.has_unknown && times > 0,
        }
    }
}
