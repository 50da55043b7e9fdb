//! The memory of the machine and of the control group.

use std::fs;

use jobs::bytes::ByteSize;

use crate::node::control_group::{ControlGroups, MEMORY};
use crate::node::kib;
use crate::tools::doctor::diagnosis::Diagnosis;

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
        Self {
            total: kib(&meminfo, "MemTotal:"),
            available: kib(&meminfo, "MemAvailable:"),
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

    #[test]
    fn what_is_available_counts_or_a_lower_limit_of_the_group() {
        for (available_gib, limit, health, found) in [
            (50, None, Health::Ok, "50.0 GiB of 64.0 GiB available"),
            (2, None, Health::Warning, ""),
            (0, None, Health::Failed, ""),
            (50, Some(512 << 20), Health::Failed, "allows 512 MiB"),
            (50, Some(1 << 50), Health::Ok, ""),
        ] {
            let facts = MemoryFacts {
                total: Some(64 << 30),
                available: Some(available_gib << 30),
                limit,
            };
            let judged = facts.judged();
            assert_eq!(judged.health, health, "{judged:?}");
            assert!(judged.found.ends_with(found), "{judged:?}");
            let names_option = judged.remedy.is_some_and(|it| it.contains("--mem"));
            assert_eq!(names_option, limit == Some(512 << 20));
        }
    }

    #[test]
    fn this_machine_has_memory() {
        let facts = MemoryFacts::read(&ControlGroups::of_this_process());
        assert!(facts.total > facts.available && facts.available > Some(0));
    }
}
