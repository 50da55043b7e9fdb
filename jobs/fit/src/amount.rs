//! Amounts of memory that may be partly unknown: what one GPU will hold, compared with what is free.

use std::ops::{Add, AddAssign, Mul};

use jobs::bytes::ByteSize;
use serde::Serialize;

/// Share of the free memory above which a GPU is tight: allocators fragment, and a simulator grows
/// with its scene.
const TIGHT: f64 = 0.9;

/// Bytes used by other processes above which the free memory is displayed; a driver keeps a few
/// hundred MiB for itself.
const WORTH_SAYING: u64 = 1 << 30;

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

    /// Returns the larger amount; what is unknown in either stays unknown.
    pub(super) fn or_larger(self, other: Self) -> Self {
        let largest = if other.bytes > self.bytes {
            other
        } else {
            self
        };
        Self {
            has_unknown: self.has_unknown || other.has_unknown,
            ..largest
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

/// Memory of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GpuBudget {
    /// Total memory.
    pub total: ByteSize,
    /// Memory that other processes do not use.
    pub free: ByteSize,
}

impl GpuBudget {
    /// Returns the budget of a GPU that no process uses.
    pub fn whole(bytes: u64) -> Self {
        Self::of_gpu(bytes, 0, None)
    }

    /// Returns the budget of a GPU with NVML's numbers, at most `limit`.
    pub fn of_gpu(total: u64, used: u64, limit: Option<ByteSize>) -> Self {
        let free = total.saturating_sub(used);
        Self {
            total: ByteSize(total),
            free: ByteSize(limit.map_or(free, |limit| free.min(limit.0))),
        }
    }
}

/// The memory that one GPU will hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The GPU, as numbered by the placement.
    pub gpu: usize,
    /// Weights of policies.
    pub weights: MemoryAmount,
    /// Largest activations of a policy at any time.
    pub activations: MemoryAmount,
    /// Captured CUDA graphs of all batch sizes.
    pub graphs: MemoryAmount,
    /// CUDA contexts of the ranks.
    pub context: MemoryAmount,
    /// Memory of environments.
    pub environments: MemoryAmount,
}

/// Whether a need fits on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// Everything that is known fits.
    Yes,
    /// It fits, but barely.
    Tight,
    /// The estimate does not fit.
    No,
    /// Even the certain part does not fit.
    Never,
    /// The memory of the GPU is unknown, or everything that it will hold.
    Unknown,
}

impl Fit {
    /// Returns the word for a table.
    pub fn text(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Tight => "tight",
            Self::No | Self::Never => "no",
            Self::Unknown => "unknown",
        }
    }

    /// Returns whether it must be treated as not fitting.
    pub fn is_too_much(self) -> bool {
        matches!(self, Self::No | Self::Never)
    }

    /// Returns whether it does not fit, or barely; no proposal may lead to that.
    pub fn is_cramped(self) -> bool {
        self.is_too_much() || self == Self::Tight
    }
}

impl Need {
    /// Returns the need of an empty GPU.
    pub(super) fn none(gpu: usize) -> Self {
        Self {
            gpu,
            ..Self::default()
        }
    }

    /// Returns the sum of all parts.
    pub fn sum(&self) -> MemoryAmount {
        self.weights + self.activations + self.graphs + self.context + self.environments
    }

    /// Returns whether the sum fits into `budget`.
    pub fn fit(&self, budget: Option<GpuBudget>) -> Fit {
        let sum = self.sum();
        let Some(GpuBudget { free, .. }) = budget else {
            return Fit::Unknown;
        };
        match () {
            () if sum.certain > free => Fit::Never,
            () if sum.bytes > free => Fit::No,
            () if sum.bytes.0 as f64 > TIGHT * free.0 as f64 => Fit::Tight,
            () if sum.has_unknown => Fit::Unknown,
            () => Fit::Yes,
        }
    }

    /// Describes the need and the memory of the GPU in one line.
    pub fn text(&self, budget: Option<GpuBudget>) -> String {
        let sum = self.sum();
        let is_only_context = sum.bytes == self.context.bytes;
        let need = match (
            sum.bytes.0 > 0 && !(is_only_context && sum.has_unknown),
            sum.has_unknown,
        ) {
            (true, false) => format!("about {:.1} GiB", sum.bytes.gib()),
            (true, true) => format!("at least {:.1} GiB", sum.bytes.gib()),
            (false, true) => "unknown".to_owned(),
            (false, false) => "little".to_owned(),
        };
        let Some(GpuBudget { total, free }) = budget else {
            return format!("memory: {need}, the memory of the GPU is unknown");
        };
        let of = format!("memory: {need} of {:.1} GiB", total.gib());
        if total.0 - free.0.min(total.0) < WORTH_SAYING {
            of
        } else {
            format!("{of}, {:.1} GiB of it free", free.gib())
        }
    }

    /// Returns the larger need; what is unknown in either stays unknown.
    pub(super) fn or_larger(&self, other: &Need) -> Need {
        let (mut most, less) = if other.sum().bytes > self.sum().bytes {
            (*other, self)
        } else {
            (*self, other)
        };
        most.weights.has_unknown |= less.weights.has_unknown;
        most.environments.has_unknown |= less.environments.has_unknown;
        most
    }

    /// Adds the need of one rank on this GPU.
    pub(super) fn add(&mut self, other: &Need) {
        self.weights += other.weights;
        self.activations += other.activations;
        self.graphs += other.graphs;
        self.context += other.context;
        self.environments += other.environments;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_is_certain_and_what_is_estimated_are_held_apart() {
        let need = Need {
            weights: MemoryAmount::certain(6 * GIB),
            activations: MemoryAmount::estimated(2 * GIB),
            ..Need::default()
        };
        let fit = |gib: u64| need.fit(Some(GpuBudget::whole(gib * GIB)));
        let found = [fit(5), fit(7), fit(8), fit(10)];
        assert_eq!(found, [Fit::Never, Fit::No, Fit::Tight, Fit::Yes]);
        assert_eq!(need.fit(None), Fit::Unknown);
        let unknown = Need {
            environments: MemoryAmount::UNKNOWN,
            ..need
        };
        assert_eq!(unknown.fit(Some(GpuBudget::whole(80 * GIB))), Fit::Unknown);
        assert_eq!(unknown.fit(Some(GpuBudget::whole(5 * GIB))), Fit::Never);
    }

    #[test]
    fn what_others_use_is_not_free() {
        let need = Need {
            weights: MemoryAmount::certain(6 * GIB),
            ..Need::default()
        };
        let budget = GpuBudget::of_gpu(80 * GIB, 76 * GIB, None);
        assert_eq!(need.fit(Some(budget)), Fit::Never);
        let wanted = "memory: about 6.0 GiB of 80.0 GiB, 4.0 GiB of it free";
        assert_eq!(need.text(Some(budget)), wanted);
        let found = GpuBudget::of_gpu(80 * GIB, GIB, Some(ByteSize(12 * GIB))).free;
        assert_eq!(found, ByteSize(12 * GIB));
        assert_eq!(GpuBudget::of_gpu(8 * GIB, 9 * GIB, None).free, ByteSize(0));
    }

    #[test]
    fn what_is_unknown_is_never_nothing() {
        let unknown = Need {
            environments: MemoryAmount::UNKNOWN,
            context: MemoryAmount::estimated(GIB / 2),
            ..Need::default()
        };
        let found = unknown.text(Some(GpuBudget::whole(GIB)));
        assert_eq!(found, "memory: unknown of 1.0 GiB");
        let more = Need {
            weights: MemoryAmount::certain(2 * GIB),
            ..unknown
        };
        let wanted = "memory: at least 2.5 GiB, the memory of the GPU is unknown";
        assert_eq!(more.text(None), wanted);
        assert_eq!(more.sum().text(), "2.5 GiB + ?");
    }
}
