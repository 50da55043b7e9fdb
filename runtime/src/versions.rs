//! What this rank is for the journal: names and versions of the loaded components, and facts about
//! machine and process from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::sync::OnceLock;

use torchlib::{cuda, libtorch, nccl};

/// File in which NVIDIA's kernel module shows its version.
const DRIVER: &str = "/sys/module/nvidia/version";

/// The commit from which this program was built.
static COMMIT: OnceLock<&str> = OnceLock::new();

/// Sets the commit from which the program was built, if the build knew it (`make` does). The
/// program sets it, so that another commit does not recompile this library.
pub fn built_from(commit: Option<&'static str>) {
    if let Some(commit) = commit.filter(|commit| !commit.is_empty()) {
        // Only the first call counts.
        let _ = COMMIT.set(commit);
    }
}

/// Returns the versions of `rrun`, `libtorch`, `mujoco`, and with a GPU `cuda`, `nccl` and
/// `driver`.
pub fn versions() -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    let mut add = |name: &str, version: Option<String>| {
        if let Some(version) = version.filter(|version| !version.is_empty()) {
            versions.insert(name.to_owned(), version);
        }
    };
    add("rrun", Some(rrun()));
    add("libtorch", libtorch::version());
    add("mujoco", Some(mujoco_rs::mujoco_version().to_owned()));
    if let Ok(cuda) = cuda::load() {
        let numbers = cuda.versions().ok();
        add("cuda", numbers.map(|numbers| cuda_version(numbers.runtime)));
        add("nccl", nccl::version().ok().map(nccl_version));
        // A container may have the driver without its folder below /sys.
        let driver = std::fs::read_to_string(DRIVER)
            .ok()
            .map(|text| text.trim().to_owned());
        add(
            "driver",
            driver.or_else(|| Some(format!("CUDA {}", cuda_version(numbers?.driver)))),
        );
    }
    versions
}

/// Returns `0.1.0` or `0.1.0 (1a2b3c4d5e6f)`.
fn rrun() -> String {
    let version = env!("CARGO_PKG_VERSION");
    COMMIT
        .get()
        .map_or(version.to_owned(), |commit| format!("{version} ({commit})"))
}

/// Formats a version: 13000 is 13.0, which is 1000 times major plus 10 times minor
/// (`cudaRuntimeGetVersion`).
fn cuda_version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// Formats a version: 22809 is 2.28.9 (`NCCL_VERSION` of nccl.h, since 2.9).
fn nccl_version(number: i32) -> String {
    format!(
        "{}.{}.{}",
        number / 10_000,
        number / 100 % 100,
        number % 100
    )
}

/// Returns the model name of the CPU; `None` if the kernel does not tell.
pub fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map(|(_, name)| name.trim().to_owned())
}

/// Returns the peak resident memory of this process in bytes (`VmHWM` of proc_pid_status(5)); 0 if
/// unknown.
pub fn peak_rss_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    bytes_in(&status, "VmHWM:").unwrap_or(0)
}

/// Returns a number of kibibytes in a file of `/proc`, in bytes.
pub fn bytes_in(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes = value.split_whitespace().next()?.parse::<u64>();
    kibibytes.ok().map(|count| count * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_has_loaded_is_named() {
        let versions = versions();
        assert!(
            versions["rrun"].starts_with(env!("CARGO_PKG_VERSION")),
            "{versions:?}"
        );
        assert!(
            ["2.11.", "2.12."]
                .iter()
                .any(|known| versions["libtorch"].starts_with(known)),
            "{versions:?}"
        );
        assert!(versions["mujoco"].starts_with("3."), "{versions:?}");
        assert_eq!(versions.contains_key("cuda"), cuda::load().is_ok());
    }

    #[test]
    fn numbers_are_read_as_their_makers_write_them() {
        assert_eq!(
            [cuda_version(13_000), cuda_version(12_080)],
            ["13.0", "12.8"]
        );
        assert_eq!(
            [nccl_version(22_809), nccl_version(22_703)],
            ["2.28.9", "2.27.3"]
        );
    }

    #[test]
    fn this_process_has_taken_some_memory() {
        assert!(peak_rss_bytes() > 1 << 20);
    }
}
