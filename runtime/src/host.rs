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
    fn this_process_has_taken_some_memory() {
        assert!(peak_rss_bytes() > 1 << 20);
    }
}
