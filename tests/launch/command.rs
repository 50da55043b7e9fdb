//! Runs a program with `rrun` and checks its result.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use tempfile::TempDir;

use crate::launch::ended::Ended;
use crate::launch::running::Running;

/// The interpreter that `./setup.sh test` installs.
pub const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.venv/bin/python");

/// Prologue of every shell script: `await FILE` waits until another process has written something
/// to the file.
const SHELL: &str = r#"await() { until test -s "$1"; do sleep 0.01; done; }; "#;

/// Resets signals that the test process ignores, under `nohup` or in the background of a script,
/// because a shell cannot trap a signal that was ignored at its start.
const DEFAULT_SIGNALS: &str = "--default-signal=HUP,INT,QUIT,PIPE,TERM,USR1,USR2";

/// One launch in its own folder, with only the environment variables that are set here.
pub struct Rrun {
    dir: Rc<TempDir>,
    options: Vec<String>,
    program: Vec<String>,
    env: BTreeMap<String, String>,
    stdin: Option<String>,
}

impl Rrun {
    pub fn new() -> Self {
        let dir = Rc::new(tempfile::tempdir().unwrap());
        fs::create_dir(dir.path().join("tmp")).unwrap();
        let env = [
            ("PATH", std::env::var("PATH").unwrap()),
            ("PYTHON_EXEC", PYTHON.to_owned()),
            (
                "TMPDIR",
                dir.path().join("tmp").to_string_lossy().into_owned(),
            ),
        ];
        let env = env
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        Self {
            dir,
            options: Vec::new(),
            program: Vec::new(),
            env,
            stdin: None,
        }
    }

    /// Adds options of the launcher.
    pub fn options(mut self, words: &[&str]) -> Self {
        self.options
            .extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    pub fn nproc(self, ranks: usize) -> Self {
        self.options(&["--nproc-per-node", &ranks.to_string()])
    }

    pub fn max_restarts(self, restarts: u32) -> Self {
        self.options(&["--max-restarts", &restarts.to_string()])
    }

    pub fn shutdown_timeout(self, seconds: u32) -> Self {
        self.options(&["--shutdown-timeout", &seconds.to_string()])
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    pub fn without_env(mut self, name: &str) -> Self {
        self.env.remove(name);
        self
    }

    /// Writes a file to the folder in which `rrun` and its ranks run.
    pub fn file(self, name: &str, text: &str) -> Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

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

    pub fn stdin(mut self, text: &str) -> Self {
        self.stdin = Some(text.to_owned());
        self
    }

    /// Sets the program and its arguments, as on the command line.
    pub fn program(mut self, words: &[&str]) -> Self {
        self.program = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Runs a shell script, in which the launcher expands no macros.
    pub fn sh(self, script: &str) -> Self {
        let script = format!("{SHELL}{script}").replace('$', "$$");
        self.options(&["--no-python"])
            .program(&["/bin/sh", "-c", &script])
    }

    /// Runs a Python script, `script.py`.
    pub fn python(self, script: &str) -> Self {
        self.file("script.py", script).program(&["script.py"])
    }

    /// Runs a Python script of `tests/fixtures`.
    pub fn fixture(self, name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests/fixtures")
            .join(name);
        self.program(&[&path.to_string_lossy()])
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the launch and returns at once.
    pub fn start(&self) -> Running {
        let mut command = Command::new("/usr/bin/env");
        command.args([DEFAULT_SIGNALS, rig::rrun()]);
        self.start_named("rrun", command.args(&self.options).args(&self.program))
    }

    /// Works like [`Rrun::start`], but inside a shell script whose `"$@"` is the launch.
    pub fn start_below(&self, script: &str) -> Running {
        self.start_below_as("rrun", script)
    }

    /// Works like [`Rrun::start_below`], with another name for the output files, so that several
    /// launches can share a folder.
    pub fn start_below_as(&self, name: &str, script: &str) -> Running {
        let mut command = Command::new("/usr/bin/env");
        let command = command.args([DEFAULT_SIGNALS, "/bin/sh", "-c", script, "sh", rig::rrun()]);
        self.start_named(name, command.args(&self.options).args(&self.program))
    }

    fn start_named(&self, name: &str, command: &mut Command) -> Running {
        let stdin = match &self.stdin {
            Some(text) => {
                fs::write(self.path("rrun.stdin"), text).unwrap();
                File::open(self.path("rrun.stdin")).unwrap().into()
            }
            None => Stdio::null(),
        };
        let output = |stream: &str| File::create(self.path(&format!("{name}.{stream}"))).unwrap();
        command
            .env_clear()
            .envs(&self.env)
            .current_dir(self.dir.path())
            .stdin(stdin);
        command.stdout(output("stdout")).stderr(output("stderr"));
        let child = command
            .spawn()
            .expect("the binary is built before the tests run");
        Running::new(child, Rc::clone(&self.dir), name)
    }

    /// Runs the launch to its end.
    pub fn run(&self) -> Ended {
        self.start().wait()
    }

    #[track_caller]
    pub fn succeeds(&self) -> Ended {
        self.run().succeeds()
    }

    #[track_caller]
    pub fn fails_with(&self, code: i32) -> Ended {
        self.run().fails_with(code)
    }
}
