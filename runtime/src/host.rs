//! Facts about this machine and this process, from `/proc`.

use std::fs;

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
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or(0, |count| count * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_taken_some_memory() {
        assert!(peak_rss_bytes() > 1 << 20);
    }
}
