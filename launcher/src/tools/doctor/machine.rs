//! Checks of the machine and its limits, which only read files of the kernel. Each judges what it
//! is given, so that it is tested without the machine.

use std::fs;
use std::path::Path;

use jobs::bytes::ByteSize;
use jobs::count::counted;
use jobs::finding::Finding;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;

use crate::node::control_group::{MEMORY, PROCESSES};
use crate::node::{FileLimit, full_name, kib};
use crate::tools::doctor::Site;

/// What `/proc/cpuinfo` calls AVX. libmujoco of its wheels for x86-64 is compiled for it.
const NEEDED: &str = "avx";

/// Instructions with which libtorch computes several times as fast, the best first.
const FAST: [(&str, &str); 2] = [("avx512f", "AVX-512"), ("avx2", "AVX2")];

/// Below this, not even one rank runs: libtorch, MuJoCo and a renderer take about half of it.
const LEAST_MEMORY: u64 = 1 << 30;

/// Below this, two ranks with a small policy and videos hardly fit.
const LITTLE_MEMORY: u64 = 4 << 30;

/// Ranks keep this limit. Each simulator process takes a handful of descriptors, datasets and
/// videos one each.
const FEW_FILES: u64 = 1024;

/// A rank has tens of threads, which count as processes.
const FEW_PROCESSES: u64 = 1024;

/// Where POSIX shared memory lies.
const SHARED_MEMORY: &str = "/dev/shm";

/// Docker's default is 64 MiB, which is too little for NCCL and for data loaders of PyTorch.
const LITTLE_SHARED: u64 = 256 << 20;

/// Names the machine and its system, for those who read the output elsewhere.
pub(super) fn system(_: &Site) -> Vec<Finding> {
    let kernel = text("/proc/sys/kernel/osrelease");
    vec![of_system(&text("/etc/os-release"), kernel.trim())]
}

pub(super) fn cpu(site: &Site) -> Vec<Finding> {
    let (cpus, quota) = (site.node.cpus, site.groups.cpus());
    vec![of_cpu(cpus, quota, &text("/proc/cpuinfo"))]
}

pub(super) fn memory(site: &Site) -> Vec<Finding> {
    vec![of_memory(&text("/proc/meminfo"), site.groups.limit(MEMORY))]
}

pub(super) fn limits(site: &Site) -> Vec<Finding> {
    let of_user = getrlimit(Resource::RLIMIT_NPROC).ok().map(|(soft, _)| soft);
    let of_user = of_user.filter(|soft| *soft < u64::MAX);
    let at_most = of_user
        .into_iter()
        .chain(site.groups.limit(PROCESSES))
        .min();
    let shared = statvfs(Path::new(SHARED_MEMORY)).ok().map(|found| {
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        (bytes(found.blocks()), bytes(found.blocks_available()))
    });
    vec![
        open_files(site.node.open_files),
        processes(at_most),
        shared_memory(shared),
    ]
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn of_system(release: &str, kernel: &str) -> Finding {
    let distribution = value(release, "PRETTY_NAME", '=').map(|name| name.trim_matches('"'));
    let found = format!(
        "rrun {} on {}: {}, Linux {kernel}, {}",
        env!("CARGO_PKG_VERSION"),
        full_name(),
        distribution.unwrap_or("unknown distribution"),
        std::env::consts::ARCH,
    );
    Finding::ok("system", found)
}

/// Judges the CPUs of the affinity mask, of whose time the control group may allow a part.
fn of_cpu(cpus: usize, quota: Option<f64>, cpuinfo: &str) -> Finding {
    let name = "CPU";
    let model = value(cpuinfo, "model name", ':').unwrap_or("of unknown model");
    let found = format!("{}, {model}", counted(cpus, "CPU"));
    let flags = value(cpuinfo, "flags", ':').filter(|_| cfg!(target_arch = "x86_64"));
    let Some(flags) = flags else {
        return Finding::ok(name, found);
    };
    let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
    if !has(NEEDED) {
        let found = format!("{found}, without AVX, which MuJoCo's library needs");
        let remedy = "use another machine; in a virtual machine, pass the host's CPU model on";
        return Finding::failed(name, found, remedy);
    }
    let Some((_, fastest)) = FAST.into_iter().find(|(flag, _)| has(flag)) else {
        let found = format!("{found}, without AVX2: policies run slowly on it");
        let remedy = "use a GPU, or another machine; in a virtual machine, pass the host's CPU \
                      model on";
        return Finding::warning(name, found, remedy);
    };
    let Some(quota) = quota.filter(|quota| *quota < cpus as f64) else {
        return Finding::ok(name, format!("{found}, {fastest}"));
    };
    Finding::warning(
        name,
        format!("{found}, {fastest}; the control group allows the time of {quota:.1} CPUs"),
        "start no more ranks than that, or raise the limit (docker --cpus, resources.limits.cpu)",
    )
}

/// Judges what new programs can use without swapping, within the limit of the control group.
fn of_memory(meminfo: &str, limit: Option<u64>) -> Finding {
    let name = "memory";
    let sizes = (kib(meminfo, "MemTotal:"), kib(meminfo, "MemAvailable:"));
    let (Some(total), Some(available)) = sizes else {
        return Finding::note(name, "/proc/meminfo cannot be read");
    };
    let mut found = format!("{} of {} available", ByteSize(available), ByteSize(total));
    let (usable, remedy) = match limit.filter(|limit| *limit < total) {
        Some(limit) => {
            found += &format!("; the control group allows {}", ByteSize(limit));
            let remedy = "raise the limit of the job or container (--mem, docker -m, \
                          resources.limits.memory)";
            (available.min(limit), remedy)
        }
        None => (
            available,
            "end other programs, start fewer ranks, or use a larger machine",
        ),
    };
    match usable {
        ..LEAST_MEMORY => Finding::failed(name, found, remedy),
        LEAST_MEMORY..LITTLE_MEMORY => Finding::warning(name, found, remedy),
        _ => Finding::ok(name, found),
    }
}

fn open_files(limit: Option<FileLimit>) -> Finding {
    let name = "open files";
    let Some(FileLimit { soft, hard }) = limit else {
        return Finding::note(name, "the limit cannot be read");
    };
    let number = |limit| match limit {
        u64::MAX => "unlimited".to_owned(),
        limit => limit.to_string(),
    };
    let found = format!("{} per rank, at most {}", number(soft), number(hard));
    if soft < FEW_FILES {
        let remedy = "`ulimit -n 65536` before rrun, or LimitNOFILE= of the service";
        return Finding::warning(name, found, remedy);
    }
    Finding::ok(name, found)
}

/// Judges the lower one of `ulimit -u` and the limit of the control group.
fn processes(limit: Option<u64>) -> Finding {
    let name = "processes";
    let Some(limit) = limit else {
        return Finding::ok(name, "no limit");
    };
    let found = format!("at most {limit} processes and threads");
    if limit < FEW_PROCESSES {
        let remedy = "`ulimit -u 16384` before rrun, docker --pids-limit, or TasksMax= of the \
                      service";
        return Finding::warning(name, found, remedy);
    }
    Finding::ok(name, found)
}

/// Judges the size and the free bytes of `/dev/shm`; `None` if it cannot be used.
fn shared_memory(found: Option<(u64, u64)>) -> Finding {
    let name = "shared memory";
    let remedy = "docker run --shm-size=8g (or --ipc=host), an emptyDir with medium: Memory";
    let Some((size, free)) = found else {
        let found = format!("{SHARED_MEMORY} is missing: NCCL and data loaders of PyTorch need it");
        return Finding::warning(name, found, remedy);
    };
    let (size, is_little, free) = (ByteSize(size), free < LITTLE_SHARED, ByteSize(free));
    let found = format!("{free} free of {size} in {SHARED_MEMORY}");
    if is_little {
        let found = format!("{found}: too little for NCCL and data loaders of PyTorch");
        return Finding::warning(name, found, remedy);
    }
    Finding::ok(name, found)
}

/// Returns the value of a line `name : value` or `name=value` of a file.
fn value<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(separator)?;
        (found.trim() == name).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use jobs::finding::Grade;

    use super::*;

    fn check(judged: &Finding, health: Grade, end: &str) {
        assert_eq!(judged.grade, health, "{judged:?}");
        assert!(judged.found.ends_with(end), "{judged:?}");
        assert_eq!(judged.remedy.is_some(), health > Grade::Note, "{judged:?}");
    }

    #[test]
    fn the_distribution_names_itself() {
        let release = "NAME=\"Rocky Linux\"\nPRETTY_NAME=\"Rocky Linux 9.4 (Blue Onyx)\"\n";
        let named = of_system(release, "6.1").found;
        assert!(
            named.contains(": Rocky Linux 9.4 (Blue Onyx), Linux 6.1, "),
            "{named}"
        );
        let unknown = of_system("", "6.1").found;
        assert!(unknown.contains(": unknown distribution, "), "{unknown}");
    }

    #[test]
    fn the_best_instructions_are_named_and_few_of_them_or_little_time_is_told() {
        let time = "the control group allows the time of 1.5 CPUs";
        for (flags, quota, health, found) in [
            ("sse2 avx avx2", None, Grade::Ok, "8 CPUs, EPYC, AVX2"),
            ("avx avx2 avx512f", Some(8.0), Grade::Ok, "AVX-512"),
            ("sse2", None, Grade::Failed, ""),
            ("sse2 avx", None, Grade::Warning, ""),
            ("avx avx2", Some(1.5), Grade::Warning, time),
        ] {
            let cpuinfo = format!("model name\t: EPYC\nflags\t\t: {flags}\nmodel name\t: other\n");
            check(&of_cpu(8, quota, &cpuinfo), health, found);
        }
        check(&of_cpu(8, None, ""), Grade::Ok, "of unknown model");
    }

    #[test]
    fn what_is_available_counts_or_a_lower_limit_of_the_group() {
        for (available_gib, limit, health, found) in [
            (50, None, Grade::Ok, "50.0 GiB of 64.0 GiB available"),
            (2, None, Grade::Warning, ""),
            (0, None, Grade::Failed, ""),
            (50, Some(512 << 20), Grade::Failed, "allows 512 MiB"),
            (50, Some(1 << 50), Grade::Ok, "available"),
        ] {
            let available = available_gib << 20;
            let meminfo = format!("MemTotal: 67108864 kB\nMemAvailable: {available} kB\n");
            let judged = of_memory(&meminfo, limit);
            check(&judged, health, found);
            let names_option = judged.remedy.is_some_and(|it| it.contains("--mem"));
            assert_eq!(names_option, limit == Some(512 << 20));
        }
        check(&of_memory("", None), Grade::Note, "cannot be read");
        let here = of_memory(&text("/proc/meminfo"), None);
        assert_ne!(here.grade, Grade::Note, "this machine has memory");
    }

    #[test]
    fn tight_limits_are_warnings_with_what_to_do() {
        let files = |soft, hard| open_files(Some(FileLimit { soft, hard }));
        let generous = "1024 per rank, at most unlimited";
        check(&files(1024, u64::MAX), Grade::Ok, generous);
        check(&files(256, 4096), Grade::Warning, "");
        check(&processes(None), Grade::Ok, "no limit");
        check(&processes(Some(100)), Grade::Warning, "");
        check(&shared_memory(Some((8 << 30, 8 << 30))), Grade::Ok, "");
        let little = shared_memory(Some((64 << 20, 60 << 20)));
        check(&little, Grade::Warning, "of PyTorch");
        assert!(
            little.found.starts_with("60 MiB free of 64 MiB"),
            "{little:?}"
        );
        check(&shared_memory(None), Grade::Warning, "need it");
    }
}
