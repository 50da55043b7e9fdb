//! The error file for the launcher, and the peak memory of the process.

use std::time::{SystemTime, UNIX_EPOCH};

/// Writes `TORCHELASTIC_ERROR_FILE` in the format of torchelastic's `@record`, so that the launcher
/// can report the reason. Source:
/// torch/distributed/elastic/multiprocessing/errors/error_handler.py.
pub fn write_error_file(reason: &str) {
    let Some(path) = std::env::var_os("TORCHELASTIC_ERROR_FILE").filter(|path| !path.is_empty())
    else {
        return;
    };
    let timestamp = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let text = serde_json::json!({
        "message": {"message": reason, "extraInfo": {"py_callstack": reason, "timestamp": timestamp.to_string()}}
    });
    // The reason is already on stderr; a second error about this file would hide it.
    let _ = std::fs::write(path, text.to_string());
}

/// Returns the peak resident memory of this process in bytes (`VmHWM` of proc_pid_status(5)); 0 if
/// unknown.
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
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
