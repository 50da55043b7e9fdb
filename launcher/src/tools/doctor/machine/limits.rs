//! Limits on open files, processes and shared memory.

use std::path::Path;

use jobs::bytes::ByteSize;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;

use crate::node::control_group::{ControlGroups, PROCESSES};
use crate::process::files::FileLimit;
use crate::tools::doctor::diagnosis::Diagnosis;

/// Ranks keep this limit. Each simulator process takes a handful of descriptors, datasets and
/// videos one each.
const FEW_FILES: u64 = 1024;

/// A rank has tens of threads, which count as processes.
const FEW_PROCESSES: u64 = 1024;

/// Where POSIX shared memory lies.
const SHARED_MEMORY: &str = "/dev/shm";

/// Docker's default is 64 MiB, which is too little for NCCL and for data loaders of PyTorch.
const LITTLE_SHARED: u64 = 256 << 20;

/// The limits of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    open_files: Option<FileLimit>,
    /// The lower one of `ulimit -u` and the limit of the control group.
    processes: Option<u64>,
    /// Size and free bytes of [`SHARED_MEMORY`]; `None` if it cannot be used.
    shared_memory: Option<(u64, u64)>,
}

impl Limits {
    pub(super) fn read(open_files: Option<FileLimit>, groups: &ControlGroups) -> Self {
        let of_user = getrlimit(Resource::RLIMIT_NPROC).ok();
        let of_user = of_user
            .map(|(soft, _)| soft)
            .filter(|soft| *soft < u64::MAX);
        let of_group = groups.limit(PROCESSES);
        Self {
            open_files,
            processes: [of_user, of_group].into_iter().flatten().min(),
            shared_memory: shared_memory(),
        }
    }

    pub(super) fn judged(self) -> Vec<Diagnosis> {
        vec![
            open_files(self.open_files),
            processes(self.processes),
            of_shared_memory(self.shared_memory),
        ]
    }
}

fn open_files(limit: Option<FileLimit>) -> Diagnosis {
    let name = "open files";
    let Some(FileLimit { soft, hard }) = limit else {
        return Diagnosis::note(name, "the limit cannot be read");
    };
    let found = format!("{} per rank, at most {}", number(soft), number(hard));
    if soft < FEW_FILES {
        let remedy = "`ulimit -n 65536` before rrun, or LimitNOFILE= of the service";
        return Diagnosis::warning(name, found, remedy);
    }
    Diagnosis::ok(name, found)
}

fn processes(limit: Option<u64>) -> Diagnosis {
    let name = "processes";
    match limit {
        None => Diagnosis::ok(name, "no limit"),
        Some(limit) if limit < FEW_PROCESSES => {
            let found = format!("at most {limit} processes and threads");
            let remedy = "`ulimit -u 16384` before rrun, docker --pids-limit, or TasksMax= of the \
                          service";
            Diagnosis::warning(name, found, remedy)
        }
        Some(limit) => Diagnosis::ok(name, format!("at most {limit} processes and threads")),
    }
}

fn of_shared_memory(found: Option<(u64, u64)>) -> Diagnosis {
    let name = "shared memory";
    let remedy = "docker run --shm-size=8g (or --ipc=host), an emptyDir with medium: Memory";
    let Some((size, free)) = found else {
        let found = format!("{SHARED_MEMORY} is missing: NCCL and data loaders of PyTorch need it");
        return Diagnosis::warning(name, found, remedy);
    };
    let text = format!(
        "{} free of {} in {SHARED_MEMORY}",
        ByteSize(free),
        ByteSize(size)
    );
    if free < LITTLE_SHARED {
        let found = format!("{text}: too little for NCCL and data loaders of PyTorch");
        return Diagnosis::warning(name, found, remedy);
    }
    Diagnosis::ok(name, text)
}

fn shared_memory() -> Option<(u64, u64)> {
    let found = statvfs(Path::new(SHARED_MEMORY)).ok()?;
    let block = found.fragment_size();
    Some((
        found.blocks().saturating_mul(block),
        found.blocks_available().saturating_mul(block),
    ))
}

fn number(limit: u64) -> String {
    match limit {
        u64::MAX => "unlimited".to_owned(),
        limit => limit.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::doctor::diagnosis::Health;

    #[test]
    fn tight_limits_are_warnings_with_what_to_do() {
        let judged = |soft, hard, processes, shared_memory| {
            let limits = Limits {
                open_files: Some(FileLimit { soft, hard }),
                processes,
                shared_memory,
            };
            limits.judged()
        };
        let healths = |all: &[Diagnosis]| all.iter().map(|it| it.health).collect::<Vec<_>>();
        let generous = judged(1024, u64::MAX, None, Some((8 << 30, 8 << 30)));
        assert_eq!(healths(&generous), [Health::Ok; 3]);
        assert_eq!(generous[0].found, "1024 per rank, at most unlimited");
        let tight = judged(256, 4096, Some(100), Some((64 << 20, 60 << 20)));
        assert_eq!(healths(&tight), [Health::Warning; 3]);
        assert!(tight.iter().all(|it| it.remedy.is_some()), "{tight:?}");
        assert!(
            tight[2].found.starts_with("60 MiB free of 64 MiB"),
            "{tight:?}"
        );
        assert_eq!(of_shared_memory(None).health, Health::Warning);
    }
}
