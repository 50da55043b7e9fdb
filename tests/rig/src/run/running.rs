//! A program that runs.

use std::fs;
use std::ops::Deref;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;

use crate::process;
use crate::run::{Ended, Folder, Signal};
use crate::wait::{DEADLINE, Look, within};

/// A running program, killed on drop.
pub struct Running {
    child: Child,
    folder: Folder,
    /// The name of its output files.
    name: String,
}

impl Running {
    pub(crate) fn new(child: Child, folder: Folder, name: String) -> Self {
        Self {
            child,
            folder,
            name,
        }
    }

    /// Returns its PID.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Returns the PIDs of its children that are `rrun-rank`.
    pub fn ranks(&self) -> Vec<i32> {
        process::children(self.pid(), "rrun-rank")
    }

    /// Returns whether it has not ended.
    pub fn is_running(&self) -> bool {
        process::alive(self.pid())
    }

    /// Sends it a signal, if it has not ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        // Until `wait`, an ended child is a zombie and its PID nobody else's.
        process::send(self.pid(), signal);
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Writes to a file that ranks await.
    pub fn write(&self, name: &str) {
        self.folder.write(name, "\n");
    }

    /// Returns its stdout so far.
    pub fn stdout(&self) -> String {
        self.text(format!("{}.stdout", self.name))
    }

    /// Returns its stderr so far.
    pub fn stderr(&self) -> String {
        self.text(format!("{}.stderr", self.name))
    }

    /// Waits until ranks have written something to these files.
    #[track_caller]
    pub fn wait_for_files(&self, names: &[&str]) {
        let has_text =
            |name: &&str| fs::metadata(self.folder.path(name)).is_ok_and(|f| f.len() > 0);
        self.until(&names.join(", "), || names.iter().all(has_text));
    }

    /// Waits until its stderr contains `text`.
    #[track_caller]
    pub fn wait_for_stderr(&self, text: &str) {
        self.until(text, || self.stderr().contains(text));
    }

    /// Waits until its stderr contains `text` so many times.
    #[track_caller]
    pub fn wait_for_count(&self, text: &str, count: usize) {
        self.until(text, || self.stderr().matches(text).count() >= count);
    }

    /// Waits until a look finds something.
    ///
    /// # Panics
    ///
    /// After the deadline, with the output and what the process and its children wait for.
    #[track_caller]
    pub fn until<L: Look>(&self, what: &str, look: impl FnMut() -> L) -> L::Found {
        let Some(found) = within(DEADLINE, look) else {
            self.overdue(what)
        };
        found
    }

    #[track_caller]
    fn overdue(&self, what: &str) -> ! {
        let threads: Vec<String> = [vec![self.pid()], self.ranks()]
            .concat()
            .into_iter()
            .flat_map(process::threads)
            .collect();
        panic!(
            "{what}: not within {DEADLINE:?}\n{}\nstdout:\n{}\nstderr:\n{}",
            threads.join("\n"),
            self.stdout(),
            self.stderr()
        );
    }

    /// Returns how it has ended, if it has: its exit code, or −n for signal n.
    pub fn code(&mut self) -> Option<i32> {
        let status = self.child.try_wait().expect("it is our child")?;
        let signal = || -status.signal().expect("it has ended");
        Some(status.code().unwrap_or_else(signal))
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let Some(code) = within(DEADLINE, || self.code()) else {
            self.overdue("the end")
        };
        let (stdout, stderr) = (self.stdout(), self.stderr());
        Ended::new(code, stdout, &stderr, self.folder.clone())
    }
}

impl Deref for Running {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.folder
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
