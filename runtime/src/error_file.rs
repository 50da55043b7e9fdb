//! The error file for the launcher.

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
