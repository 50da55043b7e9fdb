//! A SLURM job: submitted, observed, and cancelled at the end of the test.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rig::wait::{DEADLINE, Look, pause, within};

/// Pause before a question to SLURM.
const PAUSE: Duration = Duration::from_millis(100);

/// States of a job that has not ended.
const ALIVE: [&str; 6] = [
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "REQUEUED",
    "SUSPENDED",
];

/// A job and the folder of its output.
pub struct Job {
    id: String,
    folder: tempfile::TempDir,
}

impl Job {
    /// Submits a batch script.
    pub fn submit(options: &[&str], script: &str) -> Job {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        Job::submit_in(folder, options, script)
    }

    fn submit_in(folder: tempfile::TempDir, options: &[&str], script: &str) -> Job {
        let mut sbatch = Command::new("sbatch");
        sbatch
            .args(["--parsable", "--time=5", "--output"])
            .arg(folder.path().join("out"))
            .args(options);
        sbatch
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut sbatch = sbatch.spawn().expect("sbatch starts");
        let mut stdin = sbatch.stdin.take().expect("a pipe");
        write!(stdin, "#!/bin/bash\n{script}\n").expect("sbatch reads");
        drop(stdin);
        let out = sbatch.wait_with_output().expect("sbatch ends");
        assert!(out.status.success(), "sbatch refused the job");
        let id = String::from_utf8_lossy(&out.stdout)
            .trim()
            .split(';')
            .next()
            .unwrap_or_default()
            .to_owned();
        Job { id, folder }
    }

    /// Submits a script of `docs/slurm` with a copy of its training script beside it.
    pub fn example(name: &str, options: &[&str]) -> Job {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let docs = rig::root().join("docs/slurm");
        fs::copy(docs.join("train.py"), folder.path().join("train.py")).expect("train.py is there");
        let script = fs::read_to_string(docs.join(name)).expect("the example is there");
        let bin = Path::new(rig::rrun()).parent().expect("a folder").display();
        // The options of the example stay first, where sbatch looks for them.
        let (options_of_example, body): (Vec<&str>, Vec<&str>) = script
            .lines()
            .skip(1)
            .partition(|line| line.starts_with("#SBATCH"));
        let script = format!(
            "{}\nPATH={bin}:$PATH\n{}",
            options_of_example.join("\n"),
            body.join("\n")
        );
        Job::submit_in(folder, options, &script)
    }

    /// Waits until a look finds something; a failure shows the output.
    #[track_caller]
    fn until<L: Look>(&self, what: &str, look: impl FnMut() -> L) -> L::Found {
        let Some(found) = within(DEADLINE, look) else {
            panic!("{what}: not within {DEADLINE:?}\n{}", self.output());
        };
        found
    }

    /// Waits until the output contains `text`.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.until(text, || self.output().contains(text));
    }

    /// Waits until a condition holds, while the job lives.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        self.until(what, || {
            let so = is_so();
            let lives = so || ALIVE.contains(&self.state().as_str());
            assert!(lives, "no {what}; the output is\n{}", self.output());
            so
        });
    }

    /// Returns the folder in which the script runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `scontrol release`, `requeue` and the like on the job.
    #[track_caller]
    pub fn control(&self, word: &str) {
        succeeds("scontrol", &[word, &self.id]);
    }

    /// Skips the two minutes for which SLURM delays a requeued job.
    #[track_caller]
    pub fn start_now(&self) {
        let job = format!("JobId={}", self.id);
        succeeds("scontrol", &["update", &job, "StartTime=now"]);
    }

    /// Sends a signal to the processes of the steps, or with `--batch` to the script.
    #[track_caller]
    pub fn signal(&self, options: &[&str]) {
        succeeds("scancel", &[options, &[&self.id]].concat());
    }

    /// Waits for the end of the job; returns its state and output.
    #[track_caller]
    pub fn end(&self) -> (String, String) {
        let ended = || Some(self.state()).filter(|state| !ALIVE.contains(&state.as_str()));
        let state = self.until("the end of the job", ended);
        (state, self.output())
    }

    /// Waits for the end of the job, and checks its state; returns its output.
    #[track_caller]
    pub fn ends(&self, state: &str) -> String {
        let (found, output) = self.end();
        assert_eq!(found, state, "{output}");
        output
    }

    /// Waits for the end of the job; returns the lines of its output that begin with `prefix`,
    /// sorted.
    #[track_caller]
    pub fn lines(&self, prefix: &str) -> Vec<String> {
        let output = self.ends("COMPLETED");
        let lines = output.lines().filter(|line| line.starts_with(prefix));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Returns the job's state as SLURM names it. SLURM is asked, it does not tell: not too often.
    pub fn state(&self) -> String {
        pause(PAUSE);
        let out = Command::new("scontrol")
            .args(["show", "job", &self.id])
            .output()
            .expect("scontrol starts")
            .stdout;
        let text = String::from_utf8_lossy(&out).into_owned();
        let state = text
            .split_whitespace()
            .find_map(|word| word.strip_prefix("JobState="));
        state.unwrap_or("GONE").to_owned()
    }

    /// Returns the output of the job so far.
    pub fn output(&self) -> String {
        let path: PathBuf = self.folder.path().join("out");
        fs::read_to_string(path).unwrap_or_default()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // No error if the job has already ended.
        let _ = Command::new("scancel").args(["--quiet", &self.id]).status();
    }
}

/// Runs a command of SLURM.
#[track_caller]
fn succeeds(program: &str, words: &[&str]) {
    let status = Command::new(program).args(words).status();
    assert!(status.is_ok_and(|it| it.success()), "{program} {words:?}");
}
