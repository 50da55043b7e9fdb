//! A program in a folder of its own: given, running, ended.
//!
//! The program runs in that folder, with the environment variables that are set here and no others
//! unless [`Given::inherit`] lets them through. Its output goes to files of the folder, so that a
//! test can look at it at any time.

mod ended;
mod given;
mod running;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

pub use ended::Ended;
pub use given::Given;
pub use running::Running;
pub use rustix::process::Signal;
pub use words::Words;

/// The folder of one program, or of several that share it; removed with the last of them.
#[derive(Clone)]
pub struct Folder(Arc<(TempDir, AtomicUsize)>);

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Folder {
    /// Makes a folder.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tmp")).unwrap();
        Self(Arc::new((dir, AtomicUsize::new(0))))
    }

    /// Returns the path of the folder.
    pub fn root(&self) -> &Path {
        self.0.0.path()
    }

    /// Returns the path of a file in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// Returns the text of a file in it.
    #[track_caller]
    pub fn text(&self, name: impl AsRef<Path>) -> String {
        let path = self.path(name);
        let bytes = fs::read(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes a file, for instance one that ranks await.
    #[track_caller]
    pub fn write(&self, name: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Returns the PIDs that ranks have written to these files.
    #[track_caller]
    pub fn pids(&self, names: &[&str]) -> Vec<i32> {
        let pid = |name: &&str| self.text(name).trim().parse().expect("a pid");
        names.iter().map(pid).collect()
    }

    /// Returns the names in a folder below, sorted.
    #[track_caller]
    pub fn entries(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    /// Returns the name of the next program's output files, without `.stdout` and `.stderr`.
    fn next_name(&self) -> String {
        format!("program.{}", self.0.1.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_a_folder_its_variables_and_its_input() {
        let given = Given::new("/bin/sh").words(["-c", "pwd; echo $A$HOME; cat; cat file"]);
        let given = given.env("A", 1).stdin("2\n").file("file", "3\n");
        let root = given.folder().root().display().to_string();
        given.succeeds().stdout_is(&format!("{root}\n1\n2\n3\n"));
    }

    #[test]
    fn a_program_is_waited_for_told_and_ended() {
        let given = Given::new("/bin/sh").words(["-c", "echo up >&2; exec sleep 1000"]);
        let running = given.start();
        running.wait_for_stderr("up");
        running.signal(Signal::TERM);
        running.wait().fails_with(-15).stderr_is("up\n");
    }
}
