//! What a rank leaves behind for its launcher, and what it took.

use std::time::{SystemTime, UNIX_EPOCH};

/// Writes `TORCHELASTIC_ERROR_FILE` in the form of torchelastic's `@record`, so that the launcher's report has the
/// reason. torch/distributed/elastic/multiprocessing/errors/error_handler.py.
pub fn write_error_file(reason: &str) {
    let Some(path) = std::env::var_os("TORCHELASTIC_ERROR_FILE").filter(|path| !path.is_empty()) else { return };
    let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let text = serde_json::json!({
        "message": {"message": reason, "extraInfo": {"py_callstack": reason, "timestamp": timestamp.to_string()}}
    });
    // The reason is on stderr already; a second error about the file would hide it.
    let _ = std::fs::write(path, text.to_string());
}

/// Highest resident memory of this process, proc_pid_status(5) `VmHWM`; 0 where it is not told.
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
