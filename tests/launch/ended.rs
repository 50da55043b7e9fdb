//! The result of a launch, and the files in its folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::rc::Rc;

use tempfile::TempDir;

/// The result of a launch, and its folder.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub dir: Rc<TempDir>,
}

impl Ended {
    #[track_caller]
    pub fn succeeds(self) -> Self {
        assert!(
            self.status.success(),
            "{:?}\n{}\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    #[track_caller]
    pub fn fails_with(self, code: i32) -> Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "{:?}\n{}\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

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

    #[track_caller]
    pub fn stdout_has(self, text: &str) -> Self {
        assert!(
            self.stdout.contains(text),
            "stdout lacks {text:?}:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    #[track_caller]
    pub fn stderr_is(self, text: &str) -> Self {
        assert_eq!(self.stderr, text);
        self
    }

    #[track_caller]
    pub fn stderr_has(self, text: &str) -> Self {
        assert!(
            self.stderr.contains(text),
            "stderr lacks {text:?}:\n{}",
            self.stderr
        );
        self
    }

    #[track_caller]
    pub fn stderr_lacks(self, text: &str) -> Self {
        assert!(
            !self.stderr.contains(text),
            "stderr has {text:?}:\n{}",
            self.stderr
        );
        self
    }

    /// Returns the part of the failure report about the first failure.
    #[track_caller]
    pub fn root_cause(&self) -> &str {
        let (_, after) = self
            .stderr
            .split_once("Root Cause (first observed failure):\n")
            .expect(&self.stderr);
        after.split("\n===").next().unwrap()
    }

    /// Returns the part of the failure report about the other failures.
    #[track_caller]
    pub fn other_failures(&self) -> &str {
        let (_, after) = self.stderr.split_once("\nFailures:\n").expect(&self.stderr);
        after.split("\n---").next().unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the text of a file in the folder of the launch.
    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        read(&self.path(name))
    }

    pub fn has_file(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Returns the names in a folder of the launch, sorted.
    pub fn entries(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    /// Returns the path of the only entry in a folder of the launch.
    #[track_caller]
    pub fn only_entry(&self, folder: &str) -> String {
        let entries = self.entries(folder);
        assert_eq!(entries.len(), 1, "{entries:?}");
        format!("{folder}/{}", entries[0])
    }

    /// Returns the PIDs that ranks have written to these files.
    #[track_caller]
    pub fn pids(&self, names: &[&str]) -> Vec<i32> {
        names
            .iter()
            .map(|name| self.text(name).trim().parse().expect("a pid"))
            .collect()
    }
}

/// Returns the whole text of a file.
pub fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}
