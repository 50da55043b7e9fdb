//! A running launch.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::launch::ended::{Ended, read};
use rig::threads::assert_none_is_exposed;

/// Time limit, longer than any step here takes on a busy machine with two cores.
const DEADLINE: Duration = Duration::from_secs(120);

/// A running launch, killed on drop.
pub struct Running {
    child: Child,
    dir: Rc<TempDir>,
    /// Prefix of the names of its output files.
    name: String,
}

impl Running {
    pub fn new(child: Child, dir: Rc<TempDir>, name: &str) -> Self {
        Self {
            child,
            dir,
            name: name.to_owned(),
        }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Sends a signal by its name to the launcher.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        assert_none_is_exposed(self.pid());
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.pid().to_string())
            .status()
            .unwrap();
        assert!(status.success(), "kill -{name} {}", self.pid());
    }

    /// Sends a signal by its name to the launcher, which may have ended.
    pub fn signal_if_running(&self, name: &str) {
        if alive(self.pid()) {
            Command::new("kill")
                .arg(format!("-{name}"))
                .arg(self.pid().to_string())
                .status()
                .unwrap();
        }
    }

    /// Waits until ranks have written something to these files.
    #[track_caller]
    pub fn wait_for_files(&self, names: &[&str]) {
        let has_text = |name: &&str| fs::metadata(self.path(name)).is_ok_and(|file| file.len() > 0);
        self.wait_for(&names.join(", "), || names.iter().all(has_text));
    }

    /// Waits until the launcher's stderr contains `text`.
    #[track_caller]
    pub fn wait_for_stderr(&self, text: &str) {
        self.wait_for(text, || self.stderr().contains(text));
    }

    /// Waits until the launcher's stderr contains `text` so many times.
    #[track_caller]
    pub fn wait_for_count(&self, text: &str, count: usize) {
        self.wait_for(text, || self.stderr().matches(text).count() >= count);
    }

    /// Waits until the launcher's stdout contains `text`.
    #[track_caller]
    pub fn wait_for_stdout(&self, text: &str) {
        self.wait_for(text, || self.stdout().contains(text));
    }

    #[track_caller]
    fn wait_for(&self, what: &str, condition: impl FnMut() -> bool) {
        assert!(
            comes_true(condition),
            "{what}: not within {DEADLINE:?}\n{}",
            self.stderr()
        );
    }

    /// Writes to a file that ranks await.
    pub fn write(&self, name: &str) {
        fs::write(self.path(name), "\n").unwrap();
    }

    /// Returns the PIDs that ranks have written to these files.
    pub fn pids(&self, names: &[&str]) -> Vec<i32> {
        let pid = |name: &&str| read(&self.path(name)).trim().parse().expect("a pid");
        names.iter().map(pid).collect()
    }

    /// Returns the text of a file in the folder of the launch.
    pub fn text(&self, name: &str) -> String {
        read(&self.path(name))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn stdout(&self) -> String {
        self.text(&format!("{}.stdout", self.name))
    }

    pub fn stderr(&self) -> String {
        self.text(&format!("{}.stderr", self.name))
    }

    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let mut status = None;
        let has_ended = comes_true(|| {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        assert!(
            has_ended,
            "the end of the launch: not within {DEADLINE:?}\n{}",
            self.stderr()
        );
        let status = status.expect("the wait ends with a status");
        let stderr = without_port_note(&self.stderr());
        Ended {
            status,
            stdout: self.stdout(),
            stderr,
            dir: Rc::clone(&self.dir),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Removes the message about torchrun's port: tests run in parallel, only one can have the port,
/// and the message of the others matters only to tests that look at a [`Running`].
fn without_port_note(stderr: &str) -> String {
    stderr
        .split_inclusive('\n')
        .filter(|line| !line.contains("port 29500 is in use"))
        .collect()
}

/// Returns whether a process exists and is not a zombie.
pub fn alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Polls until `condition` holds; fails the test after the time limit.
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(comes_true(condition), "{what}: not within {DEADLINE:?}");
}

fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    #[expect(clippy::disallowed_methods, reason = "a deadline of real processes")]
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > DEADLINE {
            return false;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "between two looks at real processes"
        )]
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
