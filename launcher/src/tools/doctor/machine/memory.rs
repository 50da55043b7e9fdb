//! The memory of the machine and of the control group.

use std::fs;

use jobs::bytes::ByteSize;

use crate::node::control_group::{ControlGroups, MEMORY};
use crate::tools::doctor::diagnosis::Diagnosis;
use crate::tools::doctor::machine::value;

/// Below this, not even one rank runs: libtorch, MuJoCo and a renderer take about half of it.
const LEAST: u64 = 1 << 30;

/// Below this, two ranks with a small policy and videos hardly fit.
const LITTLE: u64 = 4 << 30;

/// What is known about the memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryFacts {
    /// `MemTotal`.
    total: Option<u64>,
    /// `MemAvailable`: what new programs can use without swapping.
    available: Option<u64>,
    /// Limit of the control group.
    limit: Option<u64>,
}

impl MemoryFacts {
    pub(super) fn read(groups: &ControlGroups) -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let bytes = |name| {
            let kib = value(&meminfo, name, ':')?.strip_suffix("kB")?;
            kib.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Self {
            total: bytes("MemTotal"),
            available: bytes("MemAvailable"),
            limit: groups.limit(MEMORY),
        }
    }

    pub(super) fn judged(self) -> Diagnosis {
        let name = "memory";
        let (Some(total), Some(available)) = (self.total, self.available) else {
            return Diagnosis::note(name, "/proc/meminfo cannot be read");
        };
        let limit = self.limit.filter(|limit| *limit < total);
        let usable = available.min(limit.unwrap_or(u64::MAX));
        let of_group = limit.map(|limit| {
            let limit = ByteSize(limit);
            format!("; the control group allows {limit}")
        });
        let found = format!(
            "{} of {} available{}",
            ByteSize(available),
            ByteSize(total),
            of_group.unwrap_or_default()
        );
        let remedy = match limit {
            Some(_) => {
                "raise the limit of the job or container (--mem, docker -m, \
                 resources.limits.memory)"
            }
            None => "end other programs, start fewer ranks, or use a larger machine",
        };
        match usable {
            ..LEAST => Diagnosis::failed(name, found, remedy),
            LEAST..LITTLE => Diagnosis::warning(name, found, remedy),
            _ => Diagnosis::ok(name, found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::doctor::diagnosis::Health;

    fn with(available_gib: u64, limit: Option<u64>) -> Diagnosis {
        let facts = MemoryFacts {
            total: Some(64 << 30),
            available: Some(available_gib << 30),
            limit,
        };
        facts.judged()
    }

    #[test]
    fn what_is_available_counts() {
        let found = with(50, None);
        assert_eq!(
            found,
            Diagnosis::ok("memory", "50.0 GiB of 64.0 GiB available")
        );
        assert_eq!(with(2, None).health, Health::Warning);
        assert_eq!(with(0, None).health, Health::Failed);
    }

    #[test]
    fn a_limit_of_the_group_counts_if_it_is_lower() {
        let found = with(50, Some(512 << 20));
        assert_eq!(found.health, Health::Failed);
        assert!(found.found.ends_with("allows 512 MiB"), "{found:?}");
        assert!(found.remedy.unwrap().contains("--mem"));
        assert_eq!(with(50, Some(1 << 50)).health, Health::Ok);
    }

    #[test]
    fn this_machine_has_memory() {
        let facts = MemoryFacts::read(&ControlGroups::of_this_process());
        assert!(facts.total > facts.available && facts.available > Some(0));
    }
}
