//! A SLURM job: submitted, observed, and cancelled at the end of the test.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// Time limit, longer than a job of these tests takes on a loaded machine, including its time in
/// the queue.
const PATIENCE: Duration = Duration::from_secs(120);

/// Pause between two queries to SLURM.
const PAUSE: Duration = Duration::from_millis(100);

/// The launcher under test.

/// States of a job that has not ended.
const ALIVE: [&str; 6] = [
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "REQUEUED",
    "SUSPENDED",
];

/// Returns whether SLURM is available for tests; prints the reason if not.
pub fn has_slurm() -> bool {
    let nodes = Command::new("sinfo")
        .args(["-h", "-N", "-o", "%N", "-t", "idle,mixed"])
        .output();
    let reason = match nodes {
        Err(err) => format!("sinfo: {err}"),
        Ok(out) if !out.status.success() => String::from_utf8_lossy(&out.stderr).into_owned(),
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            let nodes: std::collections::BTreeSet<&str> = text.lines().collect();
            if nodes.len() >= 2 {
                return true;
            }
            format!("{} usable nodes, two are needed", nodes.len())
        }
    };
    eprintln!("skipped, no SLURM: {}", reason.trim());
    false
}

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
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/slurm");
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

    /// Waits until the output contains `text`.
    pub fn wait_for(&self, text: &str) {
        poll(
            text,
            || self.output().contains(text).then_some(()),
            || self.output(),
        );
    }

    /// Waits until a condition holds.
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let mut ask = || {
            let so = is_so();
            assert!(
                so || ALIVE.contains(&self.state().as_str()),
                "no {what}; the output is\n{}",
                self.output()
            );
            so.then_some(())
        };
        poll(what, &mut ask, || self.output());
    }

    /// Returns the folder in which the script runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `scontrol release`, `requeue` and the like on the job.
    pub fn control(&self, command: &[&str]) {
        let status = Command::new("scontrol")
            .args(command)
            .arg(&self.id)
            .status()
            .expect("scontrol starts");
        assert!(status.success(), "scontrol {command:?}");
    }

    /// Skips the two minutes for which SLURM delays a requeued job.
    pub fn start_now(&self) {
        let job = format!("JobId={}", self.id);
        let status = Command::new("scontrol")
            .args(["update", &job, "StartTime=now"])
            .status();
        assert!(
            status.expect("scontrol starts").success(),
            "scontrol update {job}"
        );
    }

    /// Sends a signal to the processes of the steps, or with `--batch` to the script.
    pub fn signal(&self, options: &[&str]) {
        let status = Command::new("scancel")
            .args(options)
            .arg(&self.id)
            .status()
            .expect("scancel starts");
        assert!(status.success(), "scancel {options:?}");
    }

    /// Waits for the end of the job; returns its state and output.
    pub fn end(&self) -> (String, String) {
        let ended = || Some(self.state()).filter(|state| !ALIVE.contains(&state.as_str()));
        let state = poll("the end of the job", ended, || self.output());
        (state, self.output())
    }

    /// Waits for the end of the job; returns the lines of its output that begin with `prefix`,
    /// sorted.
    pub fn lines(&self, prefix: &str) -> Vec<String> {
        let (state, output) = self.end();
        assert_eq!(state, "COMPLETED", "{output}");
        let mut lines: Vec<String> = output
            .lines()
            .filter(|line| line.starts_with(prefix))
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    }

    /// Returns the job's state as SLURM names it.
    pub fn state(&self) -> String {
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

#[expect(
    clippy::disallowed_methods,
    reason = "SLURM is asked, it does not tell"
)]
fn poll<T>(what: &str, mut ask: impl FnMut() -> Option<T>, output: impl Fn() -> String) -> T {
    let deadline = SystemTime::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            SystemTime::now() < deadline,
            "waited for {what}; the output is\n{}",
            output()
        );
        std::thread::sleep(PAUSE);
    }
}
