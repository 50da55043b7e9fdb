//! Runs `rrun eval` on a jobs file and checks its results.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use jobs::episode::Episode;
use jobs::journal::{self, Line};
use jobs::layout::RunFolder;
use report::Report;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Time limit, longer than any step here takes on a busy machine with two cores.
const DEADLINE: Duration = Duration::from_secs(180);

/// One evaluation in its own folder.
pub struct Eval {
    dir: TempDir,
    output: PathBuf,
    words: Vec<String>,
    is_resumed: bool,
    launcher: Vec<String>,
    env: Vec<(String, String)>,
}

/// Returns a job with the scripted expert.
pub fn job(name: &str, episodes: u64, num_envs: u64) -> Value {
    json!({
        "name": name,
        "arena_env_args": {"environment": name, "num_envs": num_envs},
        "policy_type": "scripted",
        "num_episodes": episodes,
    })
}

/// Returns the folder of the built binaries: `RRUN_BIN` for tests that run on another machine,
/// otherwise cargo's.
pub fn binaries() -> PathBuf {
    let built = || {
        Path::new(rig::rrun_rank())
            .parent()
            .expect("a binary is in a folder")
            .to_owned()
    };
    std::env::var_os("RRUN_BIN").map_or_else(built, PathBuf::from)
}

impl Eval {
    /// Creates an evaluation of these jobs by `rrun`, without videos.
    pub fn new(jobs: &[Value]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("jobs.json"),
            json!({"jobs": jobs}).to_string(),
        )
        .unwrap();
        let launcher = vec![binaries().join("rrun").to_string_lossy().into_owned()];
        let output = dir.path().join("out");
        Self {
            dir,
            output,
            words: vec!["--no-video".to_owned()],
            is_resumed: false,
            launcher,
            env: Vec::new(),
        }
    }

    /// Creates an evaluation without a jobs file, whose arguments name a configuration.
    pub fn without_jobs() -> Self {
        let eval = Self::new(&[]);
        std::fs::remove_file(eval.jobs_file()).unwrap();
        eval
    }

    pub fn nproc(mut self, ranks: usize) -> Self {
        self.launcher
            .extend(["--nproc-per-node".to_owned(), ranks.to_string()]);
        self
    }

    /// Sets another number of ranks.
    pub fn world_of(mut self, ranks: usize) -> Self {
        if let Some(last) = self.launcher.last_mut() {
            *last = ranks.to_string();
        }
        self
    }

    /// Adds options of the launcher.
    pub fn launcher_words(mut self, words: &[&str]) -> Self {
        self.launcher
            .extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Sets another launcher command, up to the word `eval`.
    pub fn launched_by(mut self, words: &[String]) -> Self {
        self.launcher = words.to_vec();
        self
    }

    pub fn words(mut self, words: &[&str]) -> Self {
        self.words
            .extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    pub fn with_video(mut self) -> Self {
        self.words.retain(|word| word != "--no-video");
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Continues the run folder with `--resume`, without a jobs file and without any earlier
    /// argument.
    pub fn resumed(mut self) -> Self {
        self.is_resumed = true;
        self.words.clear();
        self
    }

    /// Replaces the jobs in the jobs file.
    pub fn jobs(self, jobs: &[Value]) -> Self {
        self.jobs_text(&json!({"jobs": jobs}).to_string())
    }

    /// Replaces the text of the jobs file.
    pub fn jobs_text(self, text: &str) -> Self {
        std::fs::write(self.jobs_file(), text).unwrap();
        self
    }

    /// Creates an evaluation of an Experiment of Arena.
    pub fn of_experiment(yaml: &str) -> Self {
        let eval = Self::without_jobs();
        let path = eval.dir.path().join("experiment.yaml");
        std::fs::write(&path, yaml).unwrap();
        eval.words(&["--experiment", &path.to_string_lossy()])
    }

    /// Sets another run folder.
    pub fn output(mut self, output: &Path) -> Self {
        output.clone_into(&mut self.output);
        self
    }

    pub fn jobs_file(&self) -> PathBuf {
        self.dir.path().join("jobs.json")
    }

    pub fn folder(&self) -> RunFolder {
        RunFolder::new(&self.output)
    }

    /// Returns whether the arguments name the jobs.
    fn names_jobs(&self) -> bool {
        let names = |word: &String| word == "--config" || word == "--experiment";
        self.words.iter().any(names)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.launcher[0]);
        command.args(&self.launcher[1..]).arg("eval");
        if self.is_resumed {
            command.arg("--resume").arg(&self.output);
        } else if self.jobs_file().exists() || !self.names_jobs() {
            command.arg("--jobs").arg(self.jobs_file());
        }
        if !self.is_resumed {
            command.arg("--output").arg(&self.output);
        }
        command.args(&self.words);
        command
            .env_remove("LP_NUM_THREADS")
            .env_remove("OMP_NUM_THREADS")
            .env("TMPDIR", self.dir.path())
            .env("XDG_STATE_HOME", self.dir.path())
            .envs(self.env.iter().cloned());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts the evaluation and returns at once.
    pub fn start(&self) -> Running {
        let mut child = self
            .command()
            .spawn()
            .expect("the binaries are built before the tests run");
        let drain = |mut pipe: Box<dyn Read + Send>| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                // A broken pipe has already delivered all its data.
                let _ = pipe.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        };
        let stdout = drain(Box::new(child.stdout.take().unwrap()));
        let stderr = drain(Box::new(child.stderr.take().unwrap()));
        Running {
            child,
            stdout,
            stderr,
        }
    }

    /// Runs the evaluation to its end with a stdout and stderr to which every write fails.
    pub fn run_unread(&self) -> ExitStatus {
        let full = || {
            std::fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap()
        };
        self.command()
            .stdout(full())
            .stderr(full())
            .status()
            .unwrap()
    }

    /// Runs the evaluation to its end.
    pub fn run(&self) -> Ended {
        self.start().wait()
    }

    /// Returns the lines of all journals.
    pub fn journal(&self) -> Vec<Line> {
        let journals = journal::read_all(&self.folder().journals()).unwrap_or_default();
        journals
            .into_iter()
            .flat_map(|(_, contents)| contents.lines)
            .collect()
    }

    /// Returns the number of finished episodes in all journals.
    pub fn journaled(&self) -> usize {
        self.journal()
            .iter()
            .filter(|line| matches!(line, Line::Episode(_)))
            .count()
    }

    pub fn report(&self) -> Report {
        let text = std::fs::read(self.folder().report()).expect("there is a report");
        serde_json::from_slice(&text).expect("the report has its schema")
    }

    /// Returns the lines of `episodes.jsonl`.
    pub fn episodes(&self) -> Vec<Episode> {
        let text = std::fs::read_to_string(self.folder().episodes()).expect("there are episodes");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a line is an episode"))
            .collect()
    }

    /// Waits until `count` episodes are in the journals.
    pub fn wait_for_episodes(&self, count: usize) {
        wait_until(&format!("{count} episodes"), || self.journaled() >= count);
    }
}

/// Polls until `condition` holds; fails the test after the time limit.
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_in_time(condition), "{what}: not within {DEADLINE:?}");
}

/// Polls until `condition` holds, and returns whether it did within the time limit.
fn holds_in_time(mut condition: impl FnMut() -> bool) -> bool {
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
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// A running evaluation.
pub struct Running {
    child: Child,
    stdout: std::thread::JoinHandle<String>,
    stderr: std::thread::JoinHandle<String>,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the PIDs of the ranks: children of the launcher, selected by program name.
    pub fn ranks(&self) -> Vec<u32> {
        let parent = self.pid().to_string();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids =
            processes.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
        pids.filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            stat.contains("(rrun-rank)") && after_name.split_whitespace().nth(1) == Some(&parent)
        })
        .collect()
    }

    /// Sends a signal by its name.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        rig::threads::assert_none_is_exposed(self.pid());
        signal(self.pid(), name);
    }

    /// Waits for the end of the process. If that takes too long, prints what its processes were
    /// doing, kills it and fails the test.
    pub fn wait(mut self) -> Ended {
        let mut status = None;
        holds_in_time(|| {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        let Some(status) = status else { self.overdue() };
        Ended {
            status,
            stdout: self.stdout.join().unwrap(),
            stderr: self.stderr.join().unwrap(),
        }
    }

    fn overdue(mut self) -> ! {
        let threads: Vec<_> = [vec![self.pid()], self.ranks()]
            .concat()
            .into_iter()
            .flat_map(threads)
            .collect();
        self.child.kill().expect("it is our child");
        // The ranks die with their launcher, and the pipes are closed then.
        let texts = [self.stdout.join().unwrap(), self.stderr.join().unwrap()];
        panic!(
            "the end of the evaluation: not within {DEADLINE:?}\n{}\n{}",
            threads.join("\n"),
            texts.join("\n")
        );
    }
}

/// The threads of a process: name, state, and what each waits for in the kernel.
fn threads(pid: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lines = threads.map(|thread| {
        let read =
            |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let (stat, wchan) = (read("stat"), read("wchan"));
        let head: Vec<&str> = stat.split(' ').take(3).collect();
        format!(
            "{pid}: {} {wchan} {}",
            head.join(" "),
            read("syscall").trim()
        )
    });
    lines.collect()
}

pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status()
        .unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// Returns whether a process exists and is not a zombie.
pub fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The result of an evaluation that has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
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
    pub fn stderr_has(self, text: &str) -> Self {
        assert!(
            self.stderr.contains(text),
            "stderr lacks {text:?}:\n{}",
            self.stderr
        );
        self
    }
}
