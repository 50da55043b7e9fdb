//! Tests of `rrun watch`: checkpoints of a training, written while it watches.

use std::fs;
use std::path::PathBuf;

use jobs::layout::RunFolder;
use report::curve::{Curve, Point, PointState};
use serde_json::json;

use crate::eval::command::{Ended, Given, Running, Signal, until};
use crate::eval::given::{copy, demo_policy};

/// A training's folder, and a watch over it.
struct Training(Given);

impl Training {
    fn new() -> Self {
        Self::of(2)
    }

    /// Makes a training whose evaluations have so many episodes.
    fn of(episodes: u64) -> Self {
        let job = json!({
            "name": "reach", "num_episodes": episodes, "seed": 1,
            "arena_env_args": {"environment": "reach", "num_envs": 2},
            "policy_type": "gr00t", "policy_config_dict": {"action_chunk_length": 4},
        });
        let words = "watch --checkpoints checkpoints --jobs jobs.json --output out";
        let given = Given::rrun().inherit().words(words);
        let state = given.folder().root().display().to_string();
        let given = given
            .env("XDG_STATE_HOME", state)
            .file("jobs.json", json!({"jobs": [job]}).to_string());
        fs::create_dir(given.path("checkpoints")).unwrap();
        Self(given)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn checkpoint(&self, name: &str) -> PathBuf {
        self.path("checkpoints").join(name)
    }

    /// Writes the demo's checkpoint under a name.
    fn save(&self, name: &str) {
        copy(&demo_policy().join("."), &self.checkpoint(name));
    }

    fn watch(&self, words: &str) -> Given {
        let given = self.0.clone().words(words);
        given.words("-- eval --no-video --export-mode=none")
    }

    /// Watches to the end.
    fn watched(&self, words: &str) -> Ended {
        self.watch(words).run()
    }

    fn start(&self, words: &str) -> Running {
        self.watch(words).start()
    }

    /// Returns the processes that were started in the training's folder and run.
    fn processes(&self) -> Vec<PathBuf> {
        let folder = self.0.folder().root().canonicalize().unwrap();
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
        until(&text, || {
            self.point(name).is_some_and(|point| condition(&point))
        });
    }
}

#[test]
fn checkpoints_are_evaluated_when_they_are_complete() {
    let training = Training::new();
    let watch = training.start("--settle 1 --until 20");

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
    watch.wait().succeeds().stdout_has("| 20   | step_20");

    let curve = training.curve();
    let scores: Vec<_> = curve
        .points
        .iter()
        .map(|point| point.overall.unwrap())
        .collect();
    assert_eq!(scores.len(), 2);
    assert_eq!(scores[0], scores[1], "they are the same checkpoint");
    assert!(scores[0].episodes == 2 && scores[0].wilson95.is_some());
    let page = fs::read_to_string(training.path("out/watch.html")).unwrap();
    assert_eq!(page.matches("<circle").count(), 2);
}

#[test]
fn a_checkpoint_that_fails_is_given_up_and_the_others_are_evaluated() {
    let training = Training::new();
    training.save("step_1");
    training.save("step_2");
    fs::write(training.checkpoint("step_1").join("config.json"), "{}").unwrap();
    let output = training.watched("--settle 0 --once");
    output
        .fails_with(1)
        .stderr_has("evaluation 2 of 2 failed, it is given up");
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

    // All of it is done.
    let again = training.watched("--settle 0 --once");
    again.fails_with(1).stderr_lacks("evaluating");
}

#[test]
fn a_watch_that_is_stopped_goes_on_where_it_was() {
    let training = Training::new();
    training.save("step_1");
    let watch = training.start("--settle 0");
    training.wait_for("step_1", "running", |point| {
        point.state == PointState::Running
    });
    let second = training.watched("--once").stderr_has("is in use by");
    assert_ne!(second.code, 0);

    watch.signal(Signal::TERM);
    watch.wait().fails_with(143);
    let run = RunFolder::new(&training.path("out/step_1"));
    assert!(
        jobs::launch::holder(&run).is_none(),
        "the evaluation has ended, too"
    );

    training.watched("--settle 0 --once").succeeds();
    let point = training.point("step_1").unwrap();
    assert_eq!((point.state, point.failures), (PointState::Evaluated, 0));
}

#[test]
fn a_watch_whose_terminal_ends_stops_its_evaluation() {
    // Longer than any test.
    let training = Training::of(100_000);
    training.save("step_1");
    let watch = training.start("--settle 0");
    training.wait_for("step_1", "running", |point| {
        point.state == PointState::Running
    });
    watch.signal(Signal::HUP);
    watch.wait().fails_with(129);
    let state = training.point("step_1").unwrap().state;
    assert_ne!(state, PointState::Evaluated, "it was under way");
    assert_eq!(training.processes(), Vec::<PathBuf>::new());
}

#[test]
fn no_evaluation_outlives_a_watch_that_fails() {
    let training = Training::new();
    training.save("step_1");
    training.save("step_2");
    // The table of step_1 cannot be printed, when step_2 is already being evaluated.
    training
        .watch("--settle 0")
        .below(r#"exec "$@" > /dev/full"#)
        .fails_with(2)
        .stderr_has("evaluating step_2")
        .stderr_has("stops its evaluation");
    assert_eq!(training.processes(), Vec::<PathBuf>::new());
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let training = Training::new();
    let refused = |reason: &str| drop(training.watched("--once").stderr_has(reason));
    fs::remove_dir(training.path("checkpoints")).unwrap();
    refused("cannot read the folder of the checkpoints, `checkpoints`");
    fs::create_dir(training.path("checkpoints")).unwrap();
    // An empty folder is watched.
    training.watched("--once").succeeds();

    let change = |old: &str, new: &str| {
        let jobs = fs::read_to_string(training.path("jobs.json")).unwrap();
        fs::write(training.path("jobs.json"), jobs.replace(old, new)).unwrap();
    };
    change("\"seed\":1", "\"seed\":2");
    refused("has the results of other jobs");
    change("gr00t", "scripted");
    refused("no job has a policy with a checkpoint");
}
