//! Tests of resumed runs: with another placement, with other jobs, after a kill at any point.

use jobs::episode::Episode;
use jobs::journal::{self, Line};
use jobs::plan::RunPlan;
use serde_json::{Value, json};

use crate::eval::command::{Eval, Running, alive, job, wait_until};

/// Fields of a report about time, place, launch and speed; all other fields are results.
const NOT_RESULTS: &[&str] = &[
    // about the launch
    "jobs_file",
    "sha256",
    "run",
    "per_rank",
    "world_size_at_start",
    // about where and how a job ran
    "num_envs",
    "rank",
    "ranks",
    "video",
    "episode_video",
    "attempts",
    "datasets",
    "videos",
    // about the work done, including lost episodes
    "wall_s",
    "env_steps",
    "steps_per_s",
    "frames",
    "policy_calls",
    "infer_busy_s",
    "sim_busy_s",
    "record_waits",
    "record_wait_s",
    "infer_ms",
    "sim_ms",
    "peak_rss_bytes",
    "peak_env_bytes",
    "peak_env_vram_bytes",
    "gpu_busy",
];

/// Returns the results of a report.
fn results(eval: &Eval) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.retain(|name, _| !NOT_RESULTS.contains(&name.as_str()));
                object.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut report: Value =
        serde_json::from_slice(&std::fs::read(eval.folder().report()).unwrap()).unwrap();
    strip(&mut report);
    report
}

/// Panics with the first line that differs.
#[track_caller]
fn assert_same(found: &Eval, wanted: &Eval, place: &str) {
    let lines = |eval| serde_json::to_string_pretty(&results(eval)).unwrap();
    let (ours, theirs) = (lines(found), lines(wanted));
    let differs = ours.lines().zip(theirs.lines()).position(|(a, b)| a != b);
    let near = |text: &str, at: usize| {
        text.lines()
            .skip(at.saturating_sub(8))
            .take(12)
            .collect::<Vec<_>>()
            .join("\n")
    };
    if let Some(at) = differs {
        panic!(
            "{place}: line {at}\n{}\nis not\n{}",
            near(&ours, at),
            near(&theirs, at)
        );
    }
    assert!(ours == theirs, "{place}: one has more lines");
    assert_eq!(episodes(found), episodes(wanted), "{place}");
}

/// Returns the episodes of a report without where they ran and how long they took.
fn episodes(eval: &Eval) -> Vec<Episode> {
    let result = |episode: Episode| Episode {
        rank: 0,
        env: 0,
        wall_s: 0.0,
        ended: String::new(),
        dataset: None,
        video: None,
        episode_video: None,
        metrics: Default::default(),
        ..episode
    };
    eval.episodes().into_iter().map(result).collect()
}

fn tasks(num_envs: u64) -> Vec<Value> {
    let mut shared = job("reach", 24, 1);
    shared["name"] = json!("shared");
    shared["arena_env_args"]
        .as_object_mut()
        .unwrap()
        .remove("num_envs");
    shared["total_num_envs"] = json!(12);
    vec![
        job("reach", 30, num_envs),
        job("push", 20, num_envs),
        job("pick_and_place", 12, num_envs),
        shared,
    ]
}

/// Kills launcher and ranks, as if the node had gone down.
pub fn kill_all(running: Running) {
    let ranks = running.ranks();
    running.signal("KILL");
    // Some ranks have already died with their launcher.
    ranks.iter().filter(|pid| alive(**pid)).for_each(|pid| {
        drop(
            std::process::Command::new("kill")
                .arg("-KILL")
                .arg(pid.to_string())
                .status(),
        )
    });
    // A process that is killed in the middle of a write still holds its locks for a moment.
    let all = [ranks, vec![running.pid()]].concat();
    wait_until("the end of the launcher and its ranks", || {
        all.iter().all(|pid| !alive(*pid))
    });
}

/// Returns a job in steps, which starts again after a kill.
fn in_steps() -> Value {
    let mut steps = job("push", 1, 2);
    steps.as_object_mut().unwrap().remove("num_episodes");
    steps["name"] = json!("steps");
    steps["num_steps"] = json!(400);
    steps
}

#[test]
fn a_killed_run_goes_on_at_any_world_size_and_number_of_environments_to_the_same_report() {
    let tasks = |num_envs| [tasks(num_envs), vec![in_steps()]].concat();
    let undisturbed = Eval::new(&tasks(1)).nproc(1).words(&["--no-dataset"]);
    undisturbed.run().succeeds();
    let assigned = [
        ["--assign", "block"],
        ["--shard", "episodes"],
        ["--assign", "shuffle"],
    ];
    // Number of episodes before the kill, then number of ranks and of environments for the resumed
    // run.
    for ((killed_after, ranks, num_envs), words) in [(3, 2, 1), (40, 3, 4), (70, 1, 4)]
        .into_iter()
        .zip(assigned)
    {
        let eval = Eval::new(&tasks(if num_envs == 1 { 4 } else { 1 }))
            .nproc(4)
            .words(&["--no-dataset"]);
        let running = eval.start();
        eval.wait_for_episodes(killed_after);
        kill_all(running);
        let done = eval.journaled();
        let eval = eval.jobs(&tasks(num_envs)).world_of(ranks).words(&words);
        eval.run().succeeds().stderr_has("resuming in `");
        let place =
            format!("killed after {done}, {ranks} ranks, {num_envs} environments, {words:?}");
        assert_same(&eval, &undisturbed, &place);
        assert!(eval.report().duplicates.is_empty(), "{place}");
    }
}

#[test]
fn resume_brings_jobs_and_options_and_ends_what_was_begun() {
    let tasks = &tasks(2);
    let first = Eval::new(tasks)
        .nproc(3)
        .words(&["--no-dataset", "--seed", "7"]);
    let undisturbed = Eval::new(tasks)
        .nproc(1)
        .words(&["--no-dataset", "--seed", "7"]);
    undisturbed.run().succeeds();
    let running = first.start();
    first.wait_for_episodes(10);
    // Rank 0 recognises a resumed run by its journal; on a busy machine it may be the last to
    // start.
    let begun = first.folder().journal(0);
    wait_until("a line of rank 0", || {
        std::fs::read(&begun).is_ok_and(|text| text.contains(&b'\n'))
    });
    kill_all(running);
    std::fs::remove_file(first.jobs_file()).unwrap();
    let eval = first.resumed().world_of(2).words(&["--num-envs", "6"]);
    eval.run().succeeds();
    assert_same(&eval, &undisturbed, "resumed");
    assert!(
        !eval.folder().dataset("reach", 0, 2).exists(),
        "--no-dataset is taken over"
    );
    let plan = RunPlan::read(&eval.folder()).unwrap();
    assert_eq!(
        plan.resumed_from
            .iter()
            .map(|start| start.world_size)
            .collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(
        plan.jobs.iter().map(|job| job.num_envs).collect::<Vec<_>>(),
        [6, 6, 6, 6]
    );
    let again = eval.run().succeeds();
    assert!(again.stderr.contains("episodes done"), "{}", again.stderr);
    assert_same(&eval, &undisturbed, "resumed");
}

#[test]
fn resume_of_a_folder_without_a_run_is_refused() {
    let eval = Eval::new(&[job("reach", 1, 1)]).nproc(1).resumed();
    eval.run()
        .fails_with(1)
        .stderr_has("has no plan.json, so there is no run to resume");
    assert!(!eval.folder().root().exists());
}

#[test]
fn changed_jobs_are_refused_with_what_differs_until_they_are_accepted() {
    let eval = Eval::new(&[
        job("reach", 4, 1),
        job("push", 3, 1),
        job("pick_and_place", 2, 1),
    ])
    .nproc(2);
    eval.run().succeeds();
    let mut push = job("push", 3, 1);
    push["arena_env_args"]["max_episode_steps"] = json!(5);
    let stack = {
        let mut stack = job("reach", 2, 1);
        stack["name"] = json!("again");
        stack
    };
    let eval = eval.jobs(&[stack, push, job("reach", 6, 2)]);
    let before = std::fs::read(eval.folder().report()).unwrap();
    eval.run()
        .fails_with(1)
        .stderr_has("a different run:\n  reach: num_episodes 4 → 6\n  push: arena_env_args.max_episode_steps not set → 5\n")
        .stderr_has("  again: new\n  pick_and_place: removed\n")
        .stderr_has("or use --accept-changed-jobs: 4 finished episodes stay (1 job of another length); 5 of push, pick_and_place move to `");
    assert_eq!(std::fs::read(eval.folder().report()).unwrap(), before);
    let eval = eval.words(&["--accept-changed-jobs"]);
    eval.run()
        .succeeds()
        .stderr_has("changed: reach: num_episodes 4 → 6");
    let fresh = Eval::new(&[])
        .nproc(1)
        .words(&["--no-dataset"])
        .jobs_text(&std::fs::read_to_string(eval.jobs_file()).unwrap());
    fresh.run().succeeds();
    assert_same(&eval, &fresh, "a fresh run");
    let old = eval.folder().superseded().join("1");
    for name in [
        "plan.json",
        "report.json",
        "journal/journal_rank0.jsonl",
        "push/dataset_push_rank1.hdf5",
    ] {
        assert!(old.join(name).exists(), "{name}");
    }
    assert!(eval.folder().dataset("reach", 0, 2).exists() && !old.join("reach").exists());
    assert!(!eval.folder().job("pick_and_place").exists());
    eval.run().succeeds();
    assert!(
        !eval.folder().superseded().join("2").exists(),
        "the same words again change nothing"
    );
}

/// Returns twenty jobs of one episode; every second one has an instruction.
fn twenty(words: &str) -> Vec<Value> {
    let entry = |index: usize| {
        let mut entry = job("reach", 1, 1);
        entry["name"] = json!(format!("j{index}"));
        if index.is_multiple_of(2) {
            entry["language_instruction"] = json!(words);
        }
        entry
    };
    (0..20).map(entry).collect()
}

#[test]
fn a_launcher_that_is_killed_while_it_puts_jobs_away_leaves_all_of_it_done_or_nothing() {
    let begun = Eval::new(&twenty("before"))
        .nproc(1)
        .words(&["--no-dataset"]);
    begun.run().succeeds();
    let fresh = Eval::new(&twenty("after"))
        .nproc(2)
        .words(&["--no-dataset"]);
    fresh.run().succeeds();
    // The file that triggers the kill: it is seen a moment after its creation, wherever the
    // launcher is by then.
    for seen in [
        "plan.lock",
        "superseded",
        "superseded/1.new/plan.json",
        "superseded/1.new/.moves.json",
        "superseded/1",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("out");
        let copied = std::process::Command::new("cp")
            .arg("-r")
            .arg(begun.folder().root())
            .arg(&output)
            .status();
        assert!(copied.unwrap().success());
        std::fs::remove_file(output.join("plan.lock")).ok();
        let eval = Eval::new(&twenty("after"))
            .nproc(2)
            .words(&["--no-dataset", "--accept-changed-jobs"])
            .output(&output);
        let running = eval.start();
        // A short-lived file may be missed, but the last one stays.
        let is_there = || output.join(seen).exists() || output.join("superseded/1").exists();
        wait_until(seen, || (0..20_000).any(|_| is_there()));
        kill_all(running);
        let plan = RunPlan::read(&eval.folder()).unwrap();
        let told = |job: &jobs::job::Job| job.language_instruction.clone();
        let all: std::collections::BTreeSet<_> = plan.jobs.iter().filter_map(told).collect();
        assert_eq!(all.len(), 1, "{seen}: {all:?}");
        eval.run().succeeds();
        assert_same(&eval, &fresh, seen);
        let entries = std::fs::read_dir(eval.folder().superseded()).unwrap();
        let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["1"], "{seen}");
        let old = RunPlan::read(&jobs::layout::RunFolder::new(
            &eval.folder().superseded().join("1"),
        ))
        .unwrap();
        assert_eq!(
            old.jobs,
            RunPlan::read(&begun.folder()).unwrap().jobs,
            "{seen}"
        );
    }
}

#[test]
#[ignore = "starts 64 ranks three times"]
fn ranks_of_a_large_launch_read_what_an_earlier_one_did_from_rank_0() {
    let entry = |index| {
        let mut entry = job("reach", 20, 1);
        entry["name"] = json!(format!("j{index}"));
        entry
    };
    let jobs: Vec<_> = (0..64).map(entry).collect();
    let many = || Eval::new(&jobs).nproc(64).words(&["--no-dataset"]);
    let fresh = many();
    fresh.run().succeeds();
    let eval = many().env("RRUN_LOG", "info");
    let running = eval.start();
    eval.wait_for_episodes(100);
    kill_all(running);
    let ended = eval.run().succeeds();
    let told = ended.stderr.matches("has read the extract of rank 0");
    assert_eq!(told.count(), 63);
    assert_same(&eval, &fresh, "resumed");
}

#[test]
fn a_file_that_is_only_written_otherwise_is_the_same_run() {
    let eval = Eval::new(&[job("reach", 2, 1), job("push", 2, 1)]).nproc(1);
    eval.run().succeeds();
    let text = r#"{ "jobs" : [
        {"num_episodes": 2, "policy_args": {}, "policy_type": "scripted", "name": "push", "video_cfg": {"fps": 5},
         "arena_env_args": {"num_envs": 3, "environment": "push"}},
        {"arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": 2, "name": "reach"} ] }"#;
    let eval = eval.jobs_text(text);
    eval.run()
        .succeeds()
        .stderr_has("the jobs are in a different order than in the run")
        .stderr_has("4 episodes done");
    assert_eq!(
        eval.report()
            .per_job
            .iter()
            .map(|job| job.name.as_str())
            .collect::<Vec<_>>(),
        ["reach", "push"]
    );
}

#[test]
fn a_torn_last_line_is_cut_off_and_said() {
    let eval = Eval::new(&[job("reach", 3, 1)]).nproc(1);
    eval.run().succeeds();
    let wanted = results(&eval);
    let path = eval.folder().journal(0);
    let text = std::fs::read(&path).unwrap();
    // A crash while the last episode was written, followed by zeros as after a power loss.
    let lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let last = lines
        .iter()
        .rposition(|line| line.starts_with(b"{\"type\":\"episode\""))
        .unwrap();
    let mut torn = lines[..last].concat();
    torn.extend([&lines[last][..40], &[0; 100][..]].concat());
    std::fs::write(&path, torn).unwrap();
    eval.run().succeeds().stderr_has(&format!(
        "`{}` ended in a torn line: 140 bytes are cut off",
        path.display()
    ));
    assert_eq!(results(&eval), wanted);
}

#[test]
fn the_journal_of_a_real_run_is_read_whatever_byte_it_ends_at() {
    let eval = Eval::new(&[job("reach", 3, 2)]).nproc(1);
    eval.run().succeeds();
    let bytes = std::fs::read(eval.folder().journal(0)).unwrap();
    let lines = journal::parse(&bytes).lines;
    for cut in 0..=bytes.len() {
        let contents = journal::parse(&bytes[..cut]);
        let whole = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(
            (contents.lines.as_slice(), contents.damaged.len()),
            (&lines[..whole], 0),
            "{cut}"
        );
    }
}

#[test]
fn a_journal_says_what_was_in_effect_and_what_policies_are_made_of() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites/demo_policy");
    let mut gr00t = job("reach", 1, 2);
    gr00t["name"] = json!("gr00t");
    gr00t["policy_type"] = json!("gr00t");
    gr00t["policy_config_dict"] = json!({"model_path": model, "action_chunk_length": 6});
    let eval = Eval::new(&[job("reach", 2, 1), gr00t]).nproc(2);
    eval.run().succeeds();
    let (mut starts, mut files, mut settings) = (Vec::new(), Vec::new(), Vec::new());
    for line in eval.journal() {
        match line {
            Line::Rank(start) => starts.push(start.versions),
            Line::PolicyFiles(found) => files.push(found),
            Line::JobStart(start) => settings.push(start.settings),
            _ => {}
        }
    }
    assert_eq!(starts.len(), 2);
    assert!(starts.iter().all(|versions| {
        ["rrun", "libtorch", "mujoco"]
            .iter()
            .all(|name| versions.contains_key(*name))
    }));
    assert_eq!(
        files
            .iter()
            .map(|found| found.path.as_str())
            .collect::<Vec<_>>(),
        [model]
    );
    settings.sort_by_key(|settings| settings["chunk_length"].as_u64());
    let of = |name: &str| {
        settings
            .iter()
            .map(|settings| settings.get(name).cloned().unwrap_or_default())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("chunk_length"), [4, 6]);
    assert_eq!(of("dtype"), [json!(null), json!("float32")]);
    assert_eq!(of("policy_path"), [json!(null), json!(model)]);
    assert_eq!(
        (of("base_seed"), of("max_batch"), of("num_envs")),
        (
            vec![json!(42); 2],
            vec![json!(1); 2],
            vec![json!(1), json!(2)]
        )
    );
    eval.run().succeeds();
    assert_eq!(
        eval.journal()
            .iter()
            .filter(|line| matches!(line, Line::PolicyFiles(_)))
            .count(),
        1,
        "said once"
    );
}
