//! Tests of ranks that are killed after they have written a demonstration and before the journal
//! line of it: the episode runs again, and its demonstration is there once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use jobs::journal::Line;
use jobs::layout::RunFolder;
use serde_json::{Value, json};

use crate::eval::command::{Eval, Running, alive, binaries, signal, wait_until};
use crate::eval::python::toy;

const EPISODES: u64 = 10;

/// How a run goes on after the kill.
#[derive(Clone, Copy, Debug)]
enum GoesOn {
    /// The launcher starts the rank again, and the others take its episodes over.
    Restarted,
    /// The launch fails, and the same command is given again.
    Repeated,
    /// The launch fails, and one rank goes on: nobody opens the dataset again.
    WithOneRank,
}

/// Returns an evaluation whose environments take long for a step: a loop looks at what is recorded
/// between them.
fn eval(format: &str, ranks: usize, goes_on: GoesOn) -> Eval {
    let mut job = toy(json!({
        "environment": toy(json!({}))["arena_env_args"]["environment"].as_str().unwrap().replace(":Toy", ":Slow"),
        "env_kwargs": {"pause": 0.15, "length": 2},
        "mapping": {"video": {"front": "pixels.top"}},
        "num_envs": 1,
    }));
    job["num_episodes"] = EPISODES.into();
    let restarts = match goes_on {
        GoesOn::Restarted => "6",
        GoesOn::Repeated | GoesOn::WithOneRank => "0",
    };
    let assign = ["--assign", "dynamic", "--shard", "episodes"];
    let record = ["--record-format", format, "--record-cameras"];
    Eval::new(&[job])
        .launcher_words(&["--max-restarts", restarts])
        .nproc(ranks)
        .words(&[&assign[..], &record].concat())
}

/// Returns the episodes in the datasets of a folder, and how often each is there.
fn recorded(folder: &RunFolder) -> BTreeMap<u64, usize> {
    let mut episodes = BTreeMap::new();
    for dataset in folder.datasets("toy").unwrap() {
        for episode in episodes_in(&dataset.path) {
            *episodes.entry(episode).or_default() += 1;
        }
    }
    episodes
}

/// Returns the numbers of the episodes in a dataset; none as long as it cannot be read.
fn episodes_in(path: &Path) -> Vec<u64> {
    match path.is_dir() {
        true => in_lerobot(path).unwrap_or_default(),
        false => in_hdf5(path).unwrap_or_default(),
    }
}

fn in_hdf5(path: &Path) -> hdf5::Result<Vec<u64>> {
    let file = hdf5::FileBuilder::new()
        .with_fapl(|fapl| fapl.file_locking(false))
        .open(path)?;
    let demos = file.group("data")?.groups()?;
    let number = |demo: &hdf5::Group| demo.attr("episode")?.read_scalar::<u64>();
    demos.iter().map(number).collect()
}

fn in_lerobot(path: &Path) -> Option<Vec<u64>> {
    let read = |name: &str| std::fs::read_to_string(path.join("meta").join(name)).ok();
    let info: Value = serde_json::from_str(&read("info.json")?).ok()?;
    let total = usize::try_from(info["total_episodes"].as_u64()?).ok()?;
    let list = read("rrun_episodes.jsonl")?;
    let number = |line: &str| serde_json::from_str::<Value>(line).ok()?["episode"].as_u64();
    list.lines().take(total).map(number).collect()
}

/// Returns the episodes that a rank has recorded and that are not in its journal.
fn unwritten(eval: &Eval, path: &Path) -> Vec<u64> {
    let mut episodes = episodes_in(path);
    for line in eval.journal() {
        if let Line::Episode(episode) = line
            && let Some(demo) = &episode.dataset
            && eval.folder().root().join(&demo.file) == path
        {
            episodes.retain(|other| *other != episode.episode);
        }
    }
    episodes
}

/// Kills a rank once it has written a demonstration without a line, and returns whether that was
/// so when it died.
fn kill_unwritten(eval: &Eval, running: &Running) -> bool {
    let mut victim = None;
    wait_until("a demonstration without a line", || {
        #[expect(clippy::disallowed_methods, reason = "a deadline of real processes")]
        let began = Instant::now();
        // A line follows its demonstration soon, so the look is a close one.
        while victim.is_none() && began.elapsed() < Duration::from_secs(1) {
            let datasets = eval.folder().datasets("toy").unwrap_or_default();
            victim = datasets
                .into_iter()
                .find(|dataset| !unwritten(eval, &dataset.path).is_empty());
        }
        victim.is_some()
    });
    let victim = victim.unwrap();
    let mut pids = eval.journal().into_iter().filter_map(|line| match line {
        Line::Rank(start) if start.rank == victim.rank.unwrap_or(0) => Some(start.pid),
        _ => None,
    });
    let pid = pids.next_back().unwrap();
    assert!(running.ranks().contains(&pid));
    signal(pid, "KILL");
    wait_until("the end of the rank", || !alive(pid));
    !unwritten(eval, &victim.path).is_empty()
}

/// Runs an evaluation of which a rank is killed; returns whether the kill hit.
fn killed(format: &str, ranks: usize, goes_on: GoesOn) -> bool {
    let case = format!("{format}, {ranks} ranks, {goes_on:?}");
    let mut eval = eval(format, ranks, goes_on);
    let running = eval.start();
    // The first one may be half done when it is killed.
    eval.wait_for_episodes(2);
    let hit = kill_unwritten(&eval, &running);
    let ended = running.wait();
    match goes_on {
        GoesOn::Restarted => drop(ended.succeeds()),
        GoesOn::Repeated => drop(eval.run().succeeds()),
        GoesOn::WithOneRank => {
            eval = eval.world_of(1);
            eval.run().succeeds();
        }
    }
    let once: BTreeMap<u64, usize> = (0..EPISODES).map(|episode| (episode, 1)).collect();
    assert_eq!(recorded(&eval.folder()), once, "{case}");
    let verified = Command::new(binaries().join("rrun"))
        .arg("verify")
        .arg(eval.folder().root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success(), "{case}: {said}");
    eprintln!("{case}: hit {hit}, {EPISODES} episodes, {EPISODES} demonstrations");
    hit
}

#[test]
fn a_demonstration_whose_rank_was_killed_before_its_line_is_there_once() {
    killed("hdf5", 2, GoesOn::Restarted);
    killed("lerobot", 2, GoesOn::WithOneRank);
}

#[test]
#[ignore = "twenty kills take minutes"]
fn twenty_kills_between_dataset_and_journal_leave_as_many_demonstrations_as_episodes() {
    let mut hits = 0;
    let ways = [
        (1, GoesOn::Repeated),
        (2, GoesOn::Restarted),
        (3, GoesOn::Restarted),
        (3, GoesOn::WithOneRank),
        (2, GoesOn::Repeated),
    ];
    for (format, (ranks, goes_on)) in ["hdf5", "lerobot"]
        .into_iter()
        .flat_map(|format| ways.map(|way| (format, way)))
    {
        // A kill that comes after the line is repeated.
        let mut twice = 0;
        while twice < 2 {
            twice += usize::from(killed(format, ranks, goes_on));
        }
        hits += twice;
    }
    assert_eq!(hits, 20);
}
