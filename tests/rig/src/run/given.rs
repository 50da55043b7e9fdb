//! A program, its words and its environment, before it starts.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{Ended, Folder, Running, Words};

/// Prologue of every shell script: `await FILE` waits until another process has written something
/// to the file.
const SHELL: &str = r#"await() { until test -s "$1"; do sleep 0.01; done; }; "#;

/// Resets signals that the test process ignores, under `nohup` or in the background of a script,
/// because a shell cannot trap a signal that was ignored at its start.
const DEFAULT_SIGNALS: &str = "--default-signal=HUP,INT,QUIT,PIPE,TERM,USR1,USR2";

/// Opens a network namespace, where all ports are free, and runs a command in it.
const ALONE: &str = r#"ip link set lo up && exec "$@""#;

/// A program in its own folder: nothing is inherited but `PATH`.
#[derive(Clone)]
pub struct Given {
    folder: Folder,
    /// Where the program runs: in its folder, if not elsewhere.
    inside: PathBuf,
    /// A command whose last argument is the program.
    below: Vec<OsString>,
    program: OsString,
    words: Vec<OsString>,
    last: Vec<OsString>,
    inherits: bool,
    /// Variables and their values; `None` for those that are removed.
    env: BTreeMap<OsString, Option<OsString>>,
    stdin: Option<Vec<u8>>,
}

impl Given {
    /// Gives a program.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let folder = Folder::new();
        let given = Self {
            inside: folder.root().to_owned(),
            below: Vec::new(),
            program: program.as_ref().to_owned(),
            words: Vec::new(),
            last: Vec::new(),
            inherits: false,
            env: BTreeMap::new(),
            stdin: None,
            folder,
        };
        let temporary = given.path("tmp");
        given
            .env_os("PATH", std::env::var_os("PATH").unwrap())
            .env_os("PYTHON_EXEC", crate::PYTHON)
            .env_os("TMPDIR", temporary)
    }

    /// Gives the launcher.
    pub fn rrun() -> Self {
        Self::new(crate::rrun())
    }

    /// Gives the program of the ranks.
    pub fn rank() -> Self {
        Self::new(crate::rrun_rank())
    }

    /// Shares the folder of another program.
    #[must_use]
    pub fn beside(mut self, other: &Folder) -> Self {
        self.folder = other.clone();
        other.root().clone_into(&mut self.inside);
        self.env_os("TMPDIR", other.path("tmp"))
    }

    /// Runs in another folder; files that are given and output stay in the own one.
    #[must_use]
    pub fn inside(mut self, path: impl AsRef<Path>) -> Self {
        path.as_ref().clone_into(&mut self.inside);
        self
    }

    /// Lets the environment of the test through, outside of any SLURM job.
    #[must_use]
    pub fn inherit(mut self) -> Self {
        self.inherits = true;
        self.without_env("SLURM_JOB_ID")
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(self, name: &str, value: impl Display) -> Self {
        self.env_os(name, value.to_string())
    }

    fn env_os(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), Some(value.into()));
        self
    }

    /// Removes a variable of its environment.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.env.insert(name.into(), None);
        self
    }

    /// Adds words: of the launcher, its options.
    #[must_use]
    pub fn words(mut self, words: impl Words) -> Self {
        self.words.extend(words.words());
        self
    }

    /// Sets the words after all others: of the launcher, the program of the ranks.
    #[must_use]
    pub fn program(mut self, words: impl Words) -> Self {
        self.last = words.words();
        self
    }

    /// Sets a shell script as the program of the ranks. The launcher expands no macros in it, and
    /// `await FILE` waits until another process has written to the file.
    #[must_use]
    pub fn sh(self, script: &str) -> Self {
        let script = format!("{SHELL}{script}").replace('$', "$$");
        self.program(["--no-python", "/bin/sh", "-c", &script])
    }

    /// Sets a Python script as the program of the ranks.
    #[must_use]
    pub fn python(self, script: &str) -> Self {
        self.file("script.py", script).program(["script.py"])
    }

    /// Runs inside a shell script whose `"$@"` is the program.
    #[must_use]
    pub fn below(self, script: &str) -> Self {
        self.under(["/bin/sh", "-c", script, "sh"])
    }

    /// Runs as the last words of another command, which must `exec` it for signals to arrive.
    #[must_use]
    pub fn under(mut self, words: impl Words) -> Self {
        self.below = [words.words(), self.below].concat();
        self
    }

    /// Runs in a network namespace of its own ([`Need::Netns`](crate::need::Need::Netns)), in which
    /// all ports are free.
    #[must_use]
    pub fn alone(self) -> Self {
        self.under(["unshare", "--net", "/bin/sh", "-c", ALONE, "sh"])
    }

    /// Sets what it reads from its standard input; nothing otherwise.
    #[must_use]
    pub fn stdin(mut self, text: impl AsRef<[u8]>) -> Self {
        self.stdin = Some(text.as_ref().to_owned());
        self
    }

    /// Writes a file to its folder.
    #[must_use]
    pub fn file(self, name: impl AsRef<Path>, text: impl AsRef<[u8]>) -> Self {
        self.folder.write(name, text);
        self
    }

    /// Writes a program to its folder.
    #[must_use]
    pub fn executable(self, name: &str, text: &str) -> Self {
        // Copied by another process: if this process wrote the file, a child of another test might
        // inherit its descriptor, and then the file could not be executed.
        let source = format!("{name}.text");
        let this = self.file(&source, text);
        let copy = Command::new("install")
            .args(["-m", "755"])
            .args([this.path(&source), this.path(name)])
            .status();
        assert!(copy.is_ok_and(|status| status.success()));
        this
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the path of a file in its folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path(name)
    }

    /// Returns the command, without its output.
    fn command(&self) -> Command {
        let mut command = Command::new("/usr/bin/env");
        command.arg(DEFAULT_SIGNALS).args(&self.below);
        command
            .arg(&self.program)
            .args(&self.words)
            .args(&self.last)
            .current_dir(&self.inside);
        if !self.inherits {
            command.env_clear();
        }
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Starts it and returns at once.
    pub fn start(&self) -> Running {
        let name = self.folder.next_name();
        let file = |stream: &str| self.path(format!("{name}.{stream}"));
        let stdin = match &self.stdin {
            Some(text) => {
                std::fs::write(file("stdin"), text).unwrap();
                File::open(file("stdin")).unwrap().into()
            }
            None => Stdio::null(),
        };
        let mut command = self.command();
        command
            .stdin(stdin)
            .stdout(File::create(file("stdout")).unwrap())
            .stderr(File::create(file("stderr")).unwrap());
        let child = command.spawn().expect("env is there");
        Running::new(child, self.folder.clone(), name)
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn run(&self) -> Ended {
        self.start().wait()
    }

    /// Runs it, and checks that it succeeds.
    #[track_caller]
    pub fn succeeds(&self) -> Ended {
        self.run().succeeds()
    }

    /// Runs it, and checks that it ends with this exit code.
    #[track_caller]
    pub fn fails_with(&self, code: i32) -> Ended {
        self.run().fails_with(code)
    }
}
