//! Given a program, when `rrun` launches it, then …

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use tempfile::TempDir;

use crate::ended::Ended;
use crate::running::Running;

/// The interpreter that `./setup.sh test` makes.
pub const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.venv/bin/python");

/// What every shell script begins with: `await FILE` waits until another process has written something into it.
const SHELL: &str = r#"await() { until test -s "$1"; do sleep 0.01; done; }; "#;

/// What the tests themselves find ignored, under `nohup` or in the background of a script, is no launch's concern: a shell
/// cannot even trap what was ignored when it began.
const DEFAULT_SIGNALS: &str = "--default-signal=HUP,INT,QUIT,PIPE,TERM,USR1,USR2";

/// One launch in a folder of its own, with nothing in the environment but what is said here.
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
            ("TMPDIR", dir.path().join("tmp").to_string_lossy().into_owned()),
        ];
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { dir, options: Vec::new(), program: Vec::new(), env, stdin: None }
    }

    /// Options of the launcher.
    pub fn options(mut self, words: &[&str]) -> Self {
        self.options.extend(words.iter().map(|word| (*word).to_owned()));
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

    /// A file in the folder in which `rrun` and its ranks run.
    pub fn file(self, name: &str, text: &str) -> Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn executable(self, name: &str, text: &str) -> Self {
        // Copied by another process: of a file that we write ourselves, a process that another test starts meanwhile may
        // hold a descriptor, and then it cannot be executed.
        let source = format!("{name}.text");
        let this = self.file(&source, text);
        let copy = Command::new("install").args(["-m", "755"]).args([this.path(&source), this.path(name)]).status();
        assert!(copy.is_ok_and(|status| status.success()));
        this
    }

    pub fn stdin(mut self, text: &str) -> Self {
        self.stdin = Some(text.to_owned());
        self
    }

    /// The program and its arguments, as they stand on the command line.
    pub fn program(mut self, words: &[&str]) -> Self {
        self.program = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// A shell script, which the launcher's macros leave alone.
    pub fn sh(self, script: &str) -> Self {
        let script = format!("{SHELL}{script}").replace('$', "$$");
        self.options(&["--no-python"]).program(&["/bin/sh", "-c", &script])
    }

    /// A Python script, `script.py`.
    pub fn python(self, script: &str) -> Self {
        self.file("script.py", script).program(&["script.py"])
    }

    /// A Python script of `tests/fixtures`.
    pub fn fixture(self, name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
        self.program(&[&path.to_string_lossy()])
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts it and comes back at once.
    pub fn start(&self) -> Running {
        let mut command = Command::new("/usr/bin/env");
        command.args([DEFAULT_SIGNALS, env!("CARGO_BIN_EXE_rrun")]);
        self.start_named("rrun", command.args(&self.options).args(&self.program))
    }

    /// As [`Rrun::start`], below a shell script whose `"$@"` is the launch.
    pub fn start_below(&self, script: &str) -> Running {
        self.start_below_as("rrun", script)
    }

    /// The same with another name for its output files, so that several can run in one folder.
    pub fn start_below_as(&self, name: &str, script: &str) -> Running {
        let mut command = Command::new("/usr/bin/env");
        let command = command.args([DEFAULT_SIGNALS, "/bin/sh", "-c", script, "sh", env!("CARGO_BIN_EXE_rrun")]);
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
        command.env_clear().envs(&self.env).current_dir(self.dir.path()).stdin(stdin);
        command.stdout(output("stdout")).stderr(output("stderr"));
        let child = command.spawn().expect("the binary is built before the tests run");
        Running::new(child, Rc::clone(&self.dir), name)
    }

    /// Runs it to its end.
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
