//! Tests of `rrun watch`: checkpoints of a training, written while it watches.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use jobs::layout::RunFolder;
use report::curve::{Curve, Point, PointState};
use serde_json::json;
use tempfile::TempDir;

use crate::eval::command::{binaries, wait_until};

/// A training's folder, and a watch over it.
struct Training(TempDir);

impl Training {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("checkpoints")).unwrap();
        let job = json!({
            "name": "reach", "num_episodes": 2, "seed": 1,
            "arena_env_args": {"environment": "reach", "num_envs": 2},
            "policy_type": "gr00t", "policy_config_dict": {"action_chunk_length": 4},
        });
        fs::write(
            dir.path().join("jobs.json"),
            json!({"jobs": [job]}).to_string(),
        )
        .unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn checkpoint(&self, name: &str) -> PathBuf {
        self.path("checkpoints").join(name)
    }

    /// Writes the demo's checkpoint under a name.
    fn save(&self, name: &str) {
        copy(&demo_policy(), &self.checkpoint(name));
    }

    fn watch(&self, words: &[&str]) -> Command {
        // The tests may run under `nohup`, which ignores SIGHUP.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP,INT,TERM");
        command.arg(binaries().join("rrun"));
        command.arg("watch").current_dir(self.0.path());
        command.args([
            "--checkpoints",
            "checkpoints",
            "--jobs",
            "jobs.json",
            "--output",
            "out",
        ]);
        command.args(["--poll", "1"]).args(words);
        command.args(["--", "eval", "--no-video", "--no-dataset"]);
        command
            .env("TMPDIR", self.0.path())
            .env("XDG_STATE_HOME", self.0.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Watches to the end.
    fn watched(&self, words: &[&str]) -> Output {
        self.watch(words).output().unwrap()
    }

    fn start(&self, words: &[&str]) -> Child {
        self.watch(words).spawn().unwrap()
    }

    /// Starts a watch whose stderr goes to the file `told`.
    fn start_told(&self, words: &[&str]) -> Child {
        let told = fs::File::create(self.path("told")).unwrap();
        self.watch(words).stderr(told).spawn().unwrap()
    }

    fn wait_until_told(&self, text: &str) {
        let told = || fs::read_to_string(self.path("told")).unwrap();
        wait_until(text, || told().contains(text));
    }

    /// Returns the processes that were started in the training's folder and run.
    fn processes(&self) -> Vec<PathBuf> {
        let folder = self.0.path().canonicalize().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let paths = processes.map(|process| process.path());
        let is_here =
            |path: &PathBuf| fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == folder);
        paths.filter(is_here).collect()
    }

    fn curve(&self) -> Curve {
        Curve::read(&self.path("out/watch.json")).unwrap_or_default()
    }

    fn point(&self, name: &str) -> Option<Point> {
        self.curve()
            .points
            .into_iter()
            .find(|point| point.name == name)
    }

    fn wait_for(&self, name: &str, what: &str, condition: impl Fn(&Point) -> bool) {
        let text = format!("{name}: {what}");
        wait_until(&text, || {
            self.point(name).is_some_and(|point| condition(&point))
        });
    }
}

fn demo_policy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../jobs/suites/demo_policy")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(fs::copy(&path, &target).unwrap()),
        }
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Sends a signal to a process.
fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args([signal, &pid])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn checkpoints_are_evaluated_when_they_are_complete() {
    let training = Training::new();
    let watch = training.start(&["--settle", "1", "--until", "20"]);

    // One is written slowly: it stops in the middle of its weights, and goes on.
    let weights = fs::read(demo_policy().join("model.safetensors")).unwrap();
    let slow = training.checkpoint("step_10");
    fs::create_dir(&slow).unwrap();
    fs::write(
        slow.join("model.safetensors"),
        &weights[..weights.len() / 2],
    )
    .unwrap();
    let is_cut =
        |point: &Point| point.reason.as_deref() == Some("model.safetensors ends too early");
    training.wait_for("step_10", "its weights are seen to be cut off", is_cut);
    assert!(!training.path("out/step_10").exists());
    training.save("step_10");
    training.wait_for("step_10", "evaluated", |point| {
        point.state == PointState::Evaluated
    });

    // The other is renamed into place.
    training.save("tmp-step_20");
    fs::rename(
        training.checkpoint("tmp-step_20"),
        training.checkpoint("step_20"),
    )
    .unwrap();
    let output = watch.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));

    let curve = training.curve();
    let scores: Vec<_> = curve
        .points
        .iter()
        .map(|point| point.overall.unwrap())
        .collect();
    assert_eq!(scores.len(), 2);
    assert_eq!(scores[0], scores[1], "they are the same checkpoint");
    assert!(scores[0].episodes == 2 && scores[0].wilson95.is_some());
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("| 20   | step_20"), "{table}");
    let page = fs::read_to_string(training.path("out/watch.html")).unwrap();
    assert_eq!(page.matches("<circle").count(), 2);
}

#[test]
fn a_checkpoint_that_fails_is_given_up_and_the_others_are_evaluated() {
    let training = Training::new();
    training.save("step_1");
    training.save("step_2");
    fs::write(training.checkpoint("step_1").join("config.json"), "{}").unwrap();
    let output = training.watched(&["--settle", "0", "--once"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let (failed, other) = (
        training.point("step_1").unwrap(),
        training.point("step_2").unwrap(),
    );
    assert_eq!((failed.state, failed.failures), (PointState::Failed, 2));
    assert!(
        failed
            .reason
            .is_some_and(|reason| reason.contains("step_1.log"))
    );
    assert_eq!(other.state, PointState::Evaluated);
    assert!(stderr(&output).contains("evaluation 2 of 2 failed, it is given up"));

    let again = training.watched(&["--settle", "0", "--once"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        !stderr(&again).contains("evaluating"),
        "all of it is done: {}",
        stderr(&again)
    );
}

#[test]
fn a_watch_that_is_stopped_goes_on_where_it_was() {
    let training = Training::new();
    training.save("step_1");
    let watch = training.start(&["--settle", "0"]);
    training.wait_for("step_1", "running", |point| {
        point.state == PointState::Running
    });
    let second = training.watched(&["--once"]);
    assert!(!second.status.success());
    assert!(
        stderr(&second).contains("is in use by"),
        "{}",
        stderr(&second)
    );

    send(&watch, "-TERM");
    let stopped = watch.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(143), "{}", stderr(&stopped));
    let run = RunFolder::new(&training.path("out/step_1"));
    assert!(
        jobs::launch::holder(&run).is_none(),
        "the evaluation has ended, too"
    );

    let output = training.watched(&["--settle", "0", "--once"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let point = training.point("step_1").unwrap();
    assert_eq!((point.state, point.failures), (PointState::Evaluated, 0));
}

#[test]
fn a_watch_whose_terminal_ends_stops_its_evaluation() {
    let training = Training::new();
    training.save("step_1");
    let watch = training.start(&["--settle", "0"]);
    training.wait_for("step_1", "running", |point| {
        point.state == PointState::Running
    });
    send(&watch, "-HUP");
    let stopped = watch.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(129), "{}", stderr(&stopped));
    assert_eq!(training.processes(), Vec::<PathBuf>::new());
}

#[test]
fn a_folder_that_is_away_for_a_while_does_not_end_the_watch() {
    let training = Training::new();
    let mut watch = training.start_told(&["--settle", "0", "--until", "1"]);
    let (folder, away) = (training.path("checkpoints"), training.path("away"));
    wait_until("the first look", || {
        training.path("out/watch.json").exists()
    });
    fs::rename(&folder, &away).unwrap();
    let reason = format!(
        "cannot read the folder of the checkpoints, `{}`: No such file or directory",
        folder.display()
    );
    training.wait_until_told(&reason);
    fs::rename(&away, &folder).unwrap();
    training.wait_until_told("the folder of the checkpoints can be read again");
    training.save("tmp-step_1");
    let (whole, step) = (
        training.checkpoint("tmp-step_1"),
        training.checkpoint("step_1"),
    );
    fs::rename(whole, step).unwrap();
    assert!(watch.wait().unwrap().success());
    let told = fs::read_to_string(training.path("told")).unwrap();
    assert_eq!(told.matches(&reason).count(), 1, "{told}");
    let point = training.point("step_1").unwrap();
    assert_eq!(point.state, PointState::Evaluated);
}

#[test]
fn no_evaluation_outlives_a_watch_that_fails() {
    let training = Training::new();
    training.save("step_1");
    training.save("step_2");
    // The table of step_1 cannot be printed, when step_2 is already being evaluated.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut watch = training.watch(&["--settle", "0"]);
    let output = watch.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let told = stderr(&output);
    assert!(
        told.contains("evaluating step_2") && told.contains("stops its evaluation"),
        "{told}"
    );
    assert_eq!(training.processes(), Vec::<PathBuf>::new(), "{told}");
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let training = Training::new();
    fs::remove_dir(training.path("checkpoints")).unwrap();
    let output = training.watched(&["--once"]);
    assert!(stderr(&output).contains("cannot read the folder of the checkpoints, `checkpoints`"));
    fs::create_dir(training.path("checkpoints")).unwrap();
    assert!(
        training.watched(&["--once"]).status.success(),
        "an empty folder is watched"
    );

    let jobs = fs::read_to_string(training.path("jobs.json")).unwrap();
    fs::write(
        training.path("jobs.json"),
        jobs.replace("\"seed\":1", "\"seed\":2"),
    )
    .unwrap();
    let output = training.watched(&["--once"]);
    assert!(
        stderr(&output).contains("has the results of other jobs"),
        "{}",
        stderr(&output)
    );
    fs::write(
        training.path("jobs.json"),
        jobs.replace("gr00t", "scripted"),
    )
    .unwrap();
    let output = training.watched(&["--once"]);
    assert!(stderr(&output).contains("no job has a policy with a checkpoint"));
}
