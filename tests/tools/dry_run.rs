//! Tests of `--dry-run` of an evaluation, and of its estimates from earlier runs.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tools::folder::{Done, Run, job, rrun_in};

/// A folder with a jobs file.
struct Workplace(TempDir);

impl Workplace {
    fn new(jobs: &[Value]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = json!({"jobs": jobs}).to_string();
        std::fs::write(dir.path().join("jobs.json"), text).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// Plans an evaluation into `outputs/now`, on CPUs.
    fn planned(&self, options: &[&str], words: &[&str]) -> Done {
        let eval = ["eval", "--jobs", "jobs.json", "--output", "outputs/now"];
        let all = [&["--dry-run"], options, &eval, words].concat();
        let planned = rrun_in(self.0.path(), &all).succeeds();
        assert!(
            !self.path("outputs/now/logs").exists(),
            "nothing is started"
        );
        planned
    }

    /// Creates an earlier run of these jobs, with `episodes` of the first one.
    fn earlier(&self, name: &str, jobs: &[Value], episodes: u64) -> Run {
        let run = Run::at(&self.path(name), jobs);
        run.rank(0, (0..episodes).map(|number| run.episode(0, number, 0)));
        run
    }
}

/// Returns the cells of the row that begins with these, without blanks.
#[track_caller]
fn row(text: &str, first: &[&str]) -> Vec<String> {
    let cells = |line: &str| -> Vec<String> {
        let parts = line.trim_matches('|').split('|');
        parts.map(|cell| cell.trim().to_owned()).collect()
    };
    let mut rows = text.lines().filter(|line| line.starts_with('|')).map(cells);
    let found = rows.find(|cells| cells.len() >= first.len() && cells[..first.len()] == *first);
    found.unwrap_or_else(|| panic!("no row {first:?} in:\n{text}"))
}

fn write(path: &Path, bytes: usize) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, vec![0; bytes]).unwrap();
}

#[test]
fn ranks_are_listed_with_their_jobs_and_episodes() {
    let work = Workplace::new(&[job("reach", 20), job("push", 30), job("pick", 5)]);
    let text = work.planned(&["--nproc-per-node", "2"], &[]).stdout();
    assert!(
        text.starts_with("2 ranks of `eval`; nothing was started\n"),
        "{text}"
    );
    assert_eq!(
        row(&text, &["0"])[3..],
        ["reach, pick", "25", "?"],
        "{text}"
    );
    assert_eq!(row(&text, &["1"])[3..], ["push", "30", "?"], "{text}");
    assert!(
        text.contains("Files      `outputs/now`, a new run\n"),
        "{text}"
    );
    assert!(
        text.contains("Time       no earlier run to estimate from\n"),
        "{text}"
    );
}

#[test]
fn leases_have_no_jobs_beforehand() {
    let work = Workplace::new(&[job("reach", 20)]);
    let text = work
        .planned(&["--nproc-per-node", "2"], &["--assign", "dynamic"])
        .stdout();
    assert_eq!(row(&text, &["1"])[3..], ["by leases", "?", "?"], "{text}");
}

#[test]
fn time_and_disk_are_those_of_the_run_that_is_most_alike() {
    let work = Workplace::new(&[job("reach", 200)]);
    let run = work.earlier("outputs/then", &[job("reach", 10)], 10);
    write(
        &run.folder
            .job("reach")
            .join("reach_video_rank0_gpu0_env0.mp4"),
        10 << 20,
    );
    write(
        &run.folder.job("reach").join("dataset_reach.hdf5"),
        20 << 20,
    );

    let text = work.planned(&[], &[]).stdout();
    assert!(
        text.contains("as in `outputs/then` (10 episodes)\n"),
        "{text}"
    );
    let time = &row(&text, &["0"])[5];
    assert!(time != "?", "{text}");
    assert_eq!(
        row(
            &text,
            &["reach", "reach", "1", "scripted", "200 episodes", "0"]
        )[7],
        "600 MiB"
    );

    let text = work.planned(&[], &["--no-dataset"]).stdout();
    assert!(
        text.contains("Disk       about 200 MiB, as in `outputs/then` (10 episodes); "),
        "{text}"
    );
    let text = work.planned(&[], &["--no-dataset", "--no-video"]).stdout();
    assert!(text.contains("Disk       little; "), "{text}");
}

#[test]
fn a_job_that_never_ran_is_named_and_leaves_the_whole_time_open() {
    let mut other = job("push", 20);
    other["arena_env_args"]["environment"] = "push".into();
    let work = Workplace::new(&[job("reach", 20), other]);
    work.earlier("outputs/then", &[job("reach", 10)], 10);
    let text = work.planned(&[], &[]).stdout();
    assert!(
        text.contains("Time       no earlier run of `push` to estimate from\n"),
        "{text}"
    );
    assert_ne!(row(&text, &["reach"])[6], "?", "{text}");
    assert_eq!(row(&text, &["push"])[6], "?", "{text}");
}

#[test]
fn finished_episodes_are_not_counted_again() {
    let jobs = [job("reach", 20)];
    let work = Workplace::new(&jobs);
    work.earlier("outputs/now", &jobs, 12);
    let text = work.planned(&[], &[]).stdout();
    assert_eq!(row(&text, &["0"])[4], "8", "{text}");
    assert_eq!(row(&text, &["reach"])[5], "12", "{text}");
    assert!(
        text.contains("`outputs/now`, a run that is resumed: 12 episodes done\n"),
        "{text}"
    );
}

#[test]
fn json_has_the_whole_plan() {
    let work = Workplace::new(&[job("reach", 20)]);
    let words = ["--dry-run=json", "eval", "--jobs", "jobs.json"];
    let text = rrun_in(work.0.path(), &words).succeeds().stdout();
    let plan: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(plan["eval"]["run"]["jobs"][0]["name"], "reach");
}

#[test]
fn what_a_launch_would_be_refused_for_follows_the_plan() {
    let mut there = job("reach", 1);
    there["arena_env_args"] = json!({"environment": "envs.py:make"});
    let mut python = there.clone();
    python["arena_env_args"]["python"] = "/nowhere/python".into();
    let refusal = |job: &Value, format: &str| {
        let work = Workplace::new(std::slice::from_ref(job));
        let words = [format, "eval", "--jobs", "jobs.json"];
        let ended = rrun_in(work.0.path(), &words).fails_with(1);
        let wanted = "error: this launch would be refused here: `jobs.json`: job 0 (reach): ";
        ended.complains(wanted)
    };
    refusal(&there, "--dry-run")
        .complains("names `envs.py`, and there is no such file")
        .says("1 rank of `eval`; nothing was started");
    let text = refusal(&there, "--dry-run=json").stdout();
    serde_json::from_str::<Value>(&text).expect("the plan is JSON nevertheless");
    let work = Workplace::new(&[python]);
    std::fs::write(work.path("envs.py"), "").unwrap();
    rrun_in(work.0.path(), &["--dry-run", "eval", "--jobs", "jobs.json"])
        .fails_with(1)
        .complains("/nowhere/python");
}

#[test]
fn a_quick_run_is_one_episode_of_each_job_beside_the_run_folder() {
    let work = Workplace::new(&[job("reach", 20), job("push", 30)]);
    let text = work.planned(&[], &["--quick"]).stdout();
    assert_eq!(row(&text, &["0"])[3..5], ["reach, push", "2"], "{text}");
    assert!(
        text.contains("Files      `outputs/now_quick`, a new run\n"),
        "{text}"
    );
    assert!(!work.path("outputs").exists());
}

#[test]
fn the_folder_of_another_run_is_not_replaced_by_a_quick_one() {
    let jobs = [job("reach", 20)];
    let work = Workplace::new(&jobs);
    work.earlier("outputs/now_quick", &jobs, 1);
    let words = [
        "eval",
        "--jobs",
        "jobs.json",
        "--output",
        "outputs/now",
        "--quick",
    ];
    rrun_in(work.0.path(), &words)
        .fails_with(1)
        .complains("`outputs/now_quick` holds a run that is not a quick one");
    assert!(work.path("outputs/now_quick/plan.json").exists());
}

#[test]
fn latency_early_stop_and_trackers_are_shown_if_there_are_any() {
    let mut late = job("late", 4);
    late["policy_type"] = json!("scripted");
    late["latency"] = json!({"steps": 1});
    let place = Workplace::new(&[late]);
    let plain = place.planned(&[], &[]).stdout();
    assert!(
        !plain.contains("Stop  ") && !plain.contains("Trackers"),
        "{plain}"
    );
    let words = [
        "--stop-when",
        "reproduced",
        "--claim",
        "9/10",
        "--track",
        "tensorboard",
    ];
    let text = place.planned(&[], &words).stdout();
    for line in [
        "Latency    1 step for each inference: late\n",
        "Stop       when a difference of 5 points from `9 of 10 (90.0 %)` is excluded or shown, at a level of 0.05\n",
        "Trackers   tensorboard\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
