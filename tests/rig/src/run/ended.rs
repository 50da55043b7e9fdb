//! The result of a program, and the files in its folder.

use std::ops::Deref;

use crate::run::Folder;

/// A program that has ended.
pub struct Ended {
    /// Its exit code, or −n if signal n ended it.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
    folder: Folder,
}

impl Ended {
    pub(crate) fn new(code: i32, stdout: String, stderr: &str, folder: Folder) -> Self {
        Self {
            code,
            stdout,
            stderr: without_port_note(stderr),
            folder,
        }
    }

    /// Checks that its exit code is 0.
    #[track_caller]
    pub fn succeeds(self) -> Self {
        self.fails_with(0)
    }

    /// Checks its exit code, −n for signal n.
    #[track_caller]
    pub fn fails_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}", self.said());
        self
    }

    /// Checks the whole stdout.
    #[track_caller]
    pub fn stdout_is(self, text: &str) -> Self {
        assert_eq!(self.stdout, text, "stderr:\n{}", self.stderr);
        self
    }

    /// Checks the lines of stdout, in any order, because ranks print concurrently.
    #[track_caller]
    pub fn prints(self, lines: &[&str]) -> Self {
        let mut found: Vec<&str> = self.stdout.lines().collect();
        found.sort_unstable();
        assert_eq!(found, lines, "stderr:\n{}", self.stderr);
        self
    }

    /// Checks a part of stdout.
    #[track_caller]
    pub fn stdout_has(self, text: &str) -> Self {
        let has = self.stdout.contains(text);
        assert!(has, "stdout lacks {text:?}:\n{}", self.said());
        self
    }

    /// Checks that something is not in stdout.
    #[track_caller]
    pub fn stdout_lacks(self, text: &str) -> Self {
        let has = self.stdout.contains(text);
        assert!(!has, "stdout has {text:?}:\n{}", self.said());
        self
    }

    /// Checks the whole stderr.
    #[track_caller]
    pub fn stderr_is(self, text: &str) -> Self {
        assert_eq!(self.stderr, text);
        self
    }

    /// Checks a part of stderr.
    #[track_caller]
    pub fn stderr_has(self, text: &str) -> Self {
        let has = self.stderr.contains(text);
        assert!(has, "stderr lacks {text:?}:\n{}", self.said());
        self
    }

    /// Checks that something is not in stderr.
    #[track_caller]
    pub fn stderr_lacks(self, text: &str) -> Self {
        let has = self.stderr.contains(text);
        assert!(!has, "stderr has {text:?}:\n{}", self.said());
        self
    }

    /// Returns all that it printed and said, for a check that fails.
    pub fn said(&self) -> String {
        format!("{}\nstderr:\n{}", self.stdout, self.stderr)
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns whether there is such a file.
    pub fn has_file(&self, name: &str) -> bool {
        self.path(name).exists()
    }
}

impl Deref for Ended {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.folder
    }
}

/// Removes the message about torchrun's port: tests run in parallel, only one can have the port,
/// and the message of the others matters only to tests that look at a `Running`.
fn without_port_note(stderr: &str) -> String {
    stderr
        .split_inclusive('\n')
        .filter(|line| !line.contains("port 29500 is in use"))
        .collect()
}
