//! The file with the output of a tracker's process, which has a largest size.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use jobs::secrets::Redaction;

/// Maximum number of bytes that one start adds to a log.
const MOST_BYTES: usize = 1 << 20;

/// Collects the output of a process in a file, without the secrets of its environment.
pub struct OutputLog {
    path: PathBuf,
    redaction: Redaction,
    /// Created with the first line.
    file: Option<File>,
    bytes: usize,
}

impl OutputLog {
    /// Creates a log that has no file yet.
    pub fn new(path: PathBuf, redaction: Redaction) -> Self {
        Self {
            path,
            redaction,
            file: None,
            bytes: 0,
        }
    }

    /// Appends a line. Errors are ignored: the log only helps to find out why a tracker failed.
    pub fn add(&mut self, line: &str) {
        if self.bytes >= MOST_BYTES {
            return;
        }
        let mut text = format!("{}\n", self.redaction.apply(line));
        self.bytes += text.len();
        if self.bytes >= MOST_BYTES {
            text += "rrun: the output is too long, the rest is left out\n";
        }
        if self.file.is_none() {
            let folder = self.path.parent().map(std::fs::create_dir_all);
            let mut open = OpenOptions::new();
            let open = open.append(true).create(true);
            self.file = folder.and_then(|_| open.open(&self.path).ok());
        }
        let file = self.file.as_mut();
        file.map(|file| file.write_all(text.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_no_secrets_and_a_largest_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/tracker_wandb.log");
        let redaction = Redaction::new([("WANDB_API_KEY".to_owned(), "a-secret".to_owned())]);
        let mut log = OutputLog::new(path.clone(), redaction);
        assert!(!path.exists(), "a tracker that prints nothing has no log");
        log.add("the key is a-secret");
        let line = "x".repeat(2000);
        for _ in 0..1000 {
            log.add(&line);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("the key is ***\n"), "{}", &text[..40]);
        assert!(text.ends_with("\nrrun: the output is too long, the rest is left out\n"));
        assert!(text.len() < MOST_BYTES + 3000);
    }
}
