//! Tests of resumed runs: with another placement, with other jobs, after a kill.

use std::sync::OnceLock;

use jobs::episode::Episode;
use jobs::journal::Line;
use jobs::plan::RunPlan;
use rig::process::alive;
use serde_json::{Value, json};

use crate::eval::command::{Eval, Running, Signal, job, until};
use crate::eval::given::{Gate, demo_policy, merged, named};

/// Fields of a report about the launch, about where and how a job ran, and about the work done,
/// including lost episodes; all other fields are results.
const NOT_RESULTS: &str = "jobs_file sha256 run per_rank world_size_at_start \
    num_envs rank ranks video episode_video attempts datasets videos \
    wall_s env_steps steps_per_s frames policy_calls infer_busy_s sim_busy_s record_waits \
    record_wait_s infer_ms sim_ms peak_rss_bytes peak_env_bytes peak_env_vram_bytes gpu_busy";

/// Returns the results of a report.
fn results(eval: &Eval) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.retain(|name, _| !NOT_RESULTS.split(' ').any(|field| field == name));
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

/// Returns a job of each kind that goes on in a way of its own, and one that stops at a gate.
fn tasks(gate: &Gate, num_envs: u64) -> Vec<Value> {
    let mut shared = named("shared", 24, job("reach", 24, 1));
    let args = shared["arena_env_args"].as_object_mut().unwrap();
    args.remove("num_envs");
    shared["total_num_envs"] = json!(12);
    // It starts again after a kill.
    let mut steps = named("steps", 1, job("push", 1, 2));
    steps.as_object_mut().unwrap().remove("num_episodes");
    steps["num_steps"] = json!(400);
    let hasty = json!({"variations": [{"name": "hasty", "max_episode_steps": 3}]});
    vec![
        merged(job("reach", 20, num_envs), hasty),
        job("push", 12, num_envs),
        merged(
            job("pick_and_place", 8, num_envs),
            json!({"latency": {"steps": 2}}),
        ),
        shared,
        steps,
        gate.job(4),
    ]
}

/// Returns the run of these jobs that nothing has disturbed.
fn undisturbed() -> &'static Eval {
    static UNDISTURBED: OnceLock<Eval> = OnceLock::new();
    UNDISTURBED.get_or_init(|| {
        let gate = Gate::new();
        gate.open();
        let eval = Eval::new(&tasks(&gate, 1)).nproc(1);
        eval.words(&["--export-mode=none"]).finished()
    })
}

/// Kills a launcher, and waits until its ranks have died with it.
pub fn kill_all(running: Running) {
    let ranks = running.ranks();
    assert!(!ranks.is_empty(), "the run is under way");
    running.signal(Signal::KILL);
    // A process that is killed in the middle of a write still holds its locks for a moment.
    let all = [ranks, vec![running.pid()]].concat();
    until("the end of the launcher and its ranks", || {
        all.iter().all(|pid| !alive(*pid))
    });
}

/// Starts an evaluation that stops at the gate, and kills it there when `count` episodes are done.
fn killed_at(gate: &Gate, eval: &Eval, count: usize) {
    let running = eval.start();
    gate.reached();
    eval.wait_for_episodes(count);
    kill_all(running);
    gate.open();
}

#[test]
fn a_killed_launcher_takes_its_ranks_along_and_the_run_goes_on_anywhere_to_the_same_report() {
    let gate = Gate::new();
    let eval = Eval::new(&tasks(&gate, 4))
        .nproc(4)
        .words(&["--export-mode=none"]);
    killed_at(&gate, &eval, 20);
    let done = eval.journaled();
    let eval = eval.jobs(&tasks(&gate, 1)).world_of(2);
    let eval = eval.words(&["--shard", "episodes", "--assign", "block"]);
    eval.run().succeeds().stderr_has("resuming in `");
    assert_same(&eval, undisturbed(), &format!("killed after {done}"));
    assert!(eval.report().duplicates.is_empty());
}

#[test]
fn resume_brings_jobs_and_options_and_ends_what_was_begun() {
    let gate = Gate::new();
    let first = Eval::new(&tasks(&gate, 3))
        .nproc(3)
        .words(&["--export-mode=none"]);
    killed_at(&gate, &first, 10);
    std::fs::remove_file(first.jobs_file()).unwrap();
    let eval = first.resumed().world_of(2).words(&["--num-envs", "2"]);
    let eval = eval.finished();
    assert_same(&eval, undisturbed(), "resumed");
    assert!(
        !eval.folder().dataset("reach", 0, 2).exists(),
        "--export-mode=none is taken over"
    );
    let plan = RunPlan::read(&eval.folder()).unwrap();
    let sizes: Vec<_> = plan
        .resumed_from
        .iter()
        .map(|start| start.world_size)
        .collect();
    assert_eq!(sizes, [2]);
    assert!(plan.jobs[..3].iter().all(|job| job.num_envs == 2));
    eval.run().succeeds().stderr_has("episodes done");
    assert_same(&eval, undisturbed(), "resumed");
}

#[test]
fn changed_jobs_are_refused_with_what_differs_until_they_are_accepted() {
    let (reach, gone) = (job("reach", 4, 1), job("pick_and_place", 2, 1));
    let mut push = job("push", 3, 1);
    let eval = Eval::new(&[reach, push.clone(), gone]).nproc(2).finished();
    push["arena_env_args"]["max_episode_steps"] = json!(5);
    let again = named("again", 2, job("reach", 2, 1));
    let eval = eval.jobs(&[again, push, job("reach", 6, 2)]);
    let before = std::fs::read(eval.folder().report()).unwrap();
    eval.run()
        .fails_with(1)
        .stderr_has("a different run:\n  reach: num_episodes 4 → 6\n  push: arena_env_args.max_episode_steps not set → 5\n")
        .stderr_has("  again: new\n  pick_and_place: removed\n")
        .stderr_has("or use --accept-changed-jobs: 4 finished episodes stay; 5 of 2 jobs (push, pick_and_place) move to `");
    assert_eq!(std::fs::read(eval.folder().report()).unwrap(), before);
    let eval = eval.words(&["--accept-changed-jobs"]);
    eval.run()
        .succeeds()
        .stderr_has("changed: reach: num_episodes 4 → 6");
    let fresh = Eval::new(&[])
        .nproc(1)
        .words(&["--export-mode=none"])
        .jobs_text(&std::fs::read_to_string(eval.jobs_file()).unwrap())
        .finished();
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

#[test]
#[ignore = "starts 64 ranks three times"]
fn ranks_of_a_large_launch_read_what_an_earlier_one_did_from_rank_0() {
    let entry = |index| named(&format!("j{index}"), 20, job("reach", 20, 1));
    let jobs: Vec<_> = (0..64).map(entry).collect();
    let many = || Eval::new(&jobs).nproc(64).words(&["--export-mode=none"]);
    let fresh = many().finished();
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
fn a_torn_last_line_is_cut_off_and_said() {
    let eval = Eval::new(&[job("reach", 3, 1)]).nproc(1).finished();
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
fn a_journal_says_what_was_in_effect_and_what_policies_are_made_of() {
    let model = demo_policy().to_string_lossy().into_owned();
    let mut gr00t = named("gr00t", 1, job("reach", 1, 2));
    gr00t["policy_type"] = json!("gr00t");
    gr00t["policy_config_dict"] = json!({"model_path": model, "action_chunk_length": 6});
    let eval = Eval::new(&[job("reach", 2, 1), gr00t]).nproc(2).finished();
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
        [&model]
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
