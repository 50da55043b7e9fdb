//! The name of the machine on which this process runs.

/// Returns the host name that the kernel reports; empty if there is no `/proc`.
pub fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}
