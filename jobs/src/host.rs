//! The machine that this process runs on.

/// Its host name, as the kernel has it; empty where there is no `/proc`.
pub fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}
