//! Tests of ranks that are killed after they have written a demonstration and before the journal
//! line of it: the episode runs again, and its demonstration is there once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jobs::journal::Line;
use jobs::layout::RunFolder;
use rig::process::{alive, send};
use serde_json::{Value, json};

use crate::eval::command::{Ended, Eval, Running, Signal, until};
use crate::eval::given::{named, rrun, toy_of};

const EPISODES: u64 = 10;

/// Returns an evaluation whose environments take long for a step: a loop looks at what is recorded
/// between them.
fn eval(format: &str, restarts: &str) -> Eval {
    let args = json!({
        "env_kwargs": {"pause": 0.15, "length": 2},
        "mapping": {"video": {"front": "pixels.top"}},
        "num_envs": 1,
    });
    let job = named("toy", EPISODES, toy_of("Slow", args));
    let assign = ["--assign", "dynamic", "--shard", "episodes"];
    let record = ["--record-format", format, "--record-cameras"];
    Eval::new(&[job])
        .launcher_words(&["--max-restarts", restarts])
        .nproc(2)
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
    until("a demonstration without a line", || {
        let began = rig::wait::now();
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
    let pid = eval.pid_of(victim.rank.unwrap_or(0)).unwrap();
    assert!(running.ranks().contains(&pid));
    send(pid, Signal::KILL);
    until("the end of the rank", || !alive(pid));
    !unwritten(eval, &victim.path).is_empty()
}

/// Runs an evaluation of which a rank is killed; returns whether the kill came before the line.
fn killed(eval: Eval, goes_on: fn(Eval, Ended) -> Eval) -> bool {
    let running = eval.start();
    // The first one may be half done when it is killed.
    eval.wait_for_episodes(2);
    let hit = kill_unwritten(&eval, &running);
    let eval = goes_on(eval, running.wait());
    let once: BTreeMap<u64, usize> = (0..EPISODES).map(|episode| (episode, 1)).collect();
    assert_eq!(recorded(&eval.folder()), once);
    rrun(&["verify", &eval.folder().root().to_string_lossy()]);
    hit
}

#[test]
fn a_demonstration_whose_rank_was_killed_before_its_line_is_there_once_by_the_next_start() {
    let restarted = |eval: Eval, ended: Ended| {
        ended.succeeds();
        eval
    };
    assert!((0..10).any(|_| killed(eval("hdf5", "6"), restarted)));
}

#[test]
fn a_demonstration_whose_rank_was_killed_before_its_line_is_there_once_by_another_rank() {
    // Nobody opens the dataset of the other rank again.
    let alone = |eval: Eval, _| eval.world_of(1).finished();
    assert!((0..10).any(|_| killed(eval("lerobot", "0"), alone)));
}
