use super::*;
use crate::journal::{JobEnd, Journal, Line, Provenance, RankEnd};
use crate::samples;
use serde_json::json;

fn plan(seed: &str, episodes: u64) -> RunPlan {
    let job = samples::job(json!({"num_episodes": episodes}));
    samples::plan(&samples::eval_args(&["--seed", seed]), vec![job])
}

/// Returns the plan as it was asked for, without what is added when it is written.
fn asked(plan: RunPlan) -> RunPlan {
    RunPlan {
        id: String::new(),
        provenance: Provenance::default(),
        begun_by: None,
        ..plan
    }
}

/// Writes the first line of a rank.
fn begin(folder: &RunFolder) {
    write(folder, &Line::RankEnd(RankEnd::default()));
}

/// Writes a finished episode.
fn finish(folder: &RunFolder) {
    write(folder, &samples::episode(0, "a", 0).into());
}

fn write(folder: &RunFolder, line: &Line) {
    let mut journal = Journal::open(&folder.journal(0)).unwrap();
    journal.append(line).unwrap();
}

#[test]
fn the_same_run_goes_on_in_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    let first = plan("1", 3).settle(&folder, false).unwrap();
    assert_eq!(asked(first.clone()), plan("1", 3));
    assert_eq!(first.id.len(), 32);
    assert_eq!(plan("1", 3).settle(&folder, false).unwrap(), first);
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, 2, "plan.json and journal, nothing else");
}

#[test]
fn a_run_keeps_the_launch_that_began_it_until_its_jobs_change() {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    let begun_by = |plan: RunPlan, launch: &str| {
        let launch = Some(launch.to_owned());
        let plan = RunPlan { launch, ..plan };
        let begun_by = plan.settle(&folder, true).unwrap().begun_by;
        assert_eq!(RunPlan::read(&folder).unwrap().begun_by, begun_by);
        begun_by
    };
    assert_eq!(begun_by(plan("1", 3), "l1").as_deref(), Some("l1"));
    // The ranks of the launch find the plan that their launcher wrote.
    assert_eq!(begun_by(plan("1", 3), "l1").as_deref(), Some("l1"));
    finish(&folder);
    assert_eq!(begun_by(plan("1", 3), "l2").as_deref(), Some("l1"));
    // The results of the jobs that stay are older than this launch.
    assert_eq!(begun_by(plan("1", 4), "l3"), None);
}

#[test]
fn two_runs_have_different_names() {
    let id = || {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        plan("1", 3).settle(&folder, false).unwrap().id
    };
    assert_ne!(id(), id());
}

#[test]
fn another_run_is_refused_with_what_differs_and_leaves_the_folder_alone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    plan("1", 3).settle(&folder, false).unwrap();
    finish(&folder);
    let before = std::fs::read(folder.plan()).unwrap();
    for (mut other, line) in [
        (plan("2", 3), "a: seed --seed 1 → --seed 2"),
        (plan("1", 4), "a: num_episodes 3 → 4"),
    ] {
        let checked = other.check(&folder, false).unwrap_err().to_string();
        let refusal = other.settle(&folder, false).unwrap_err().to_string();
        let told = format!("contains a different run:\n  {line}\n");
        assert!(refusal.contains(&told), "{refusal}");
        assert_eq!(checked, refusal);
    }
    assert_eq!(std::fs::read(folder.plan()).unwrap(), before);
}

#[test]
fn a_run_that_came_to_nothing_is_replaced_by_the_corrected_one() {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    plan("1", 3).settle(&folder, false).unwrap();
    assert!(plan("1", 4).check(&folder, false).is_ok());
    let corrected = plan("1", 4).settle(&folder, false).unwrap();
    assert_eq!(asked(corrected.clone()), plan("1", 4));
    assert_eq!(RunPlan::read(&folder).unwrap(), corrected);
    finish(&folder);
    assert!(plan("1", 3).check(&folder, false).is_err());
}

#[test]
fn a_run_in_which_nothing_has_finished_takes_corrected_jobs_and_loses_no_line() {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    let first = plan("1", 3).settle(&folder, false).unwrap();
    begin(&folder);
    let failed = JobEnd {
        error: Some("no such module".to_owned()),
        costs: crate::costs::Costs {
            env_steps: 7,
            ..Default::default()
        },
        ..JobEnd::default()
    };
    write(&folder, &Line::JobEnd(Box::new(failed)));
    let notes = plan("2", 3).check(&folder, false).unwrap();
    assert_eq!(notes[0], "changed: a: seed --seed 1 → --seed 2");
    let told = "nothing has finished in `";
    assert!(notes[1].starts_with(told), "{notes:?}");
    assert!(notes[1].ends_with("superseded`"), "{notes:?}");
    let corrected = plan("2", 3).settle(&folder, false).unwrap();
    assert_eq!(corrected.seed, 2);
    assert_eq!(RunPlan::read(&folder).unwrap(), corrected);
    let old = RunFolder::new(&folder.superseded().join("1"));
    assert_eq!(RunPlan::read(&old).unwrap(), first);
    let journal = std::fs::read_to_string(old.journal(0)).unwrap();
    assert!(journal.contains("no such module"), "{journal}");
    finish(&folder);
    let third = plan("3", 3).check(&folder, false);
    assert!(third.is_err(), "an episode would be lost");
}

#[test]
fn four_writers_at_once_agree_on_one_plan() {
    let dir = tempfile::tempdir().unwrap();
    let folder = &RunFolder::new(dir.path());
    let settled = rig::together(4, |number| {
        let created = number.to_string();
        let plan = RunPlan {
            created,
            ..plan("1", 3)
        };
        plan.settle(folder, false).unwrap()
    });
    assert!(settled.iter().all(|plan| *plan == settled[0]));
}

#[test]
fn a_plan_of_another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    let schema = "rrun/plan/9".to_owned();
    let other = RunPlan {
        schema,
        ..plan("1", 3)
    };
    other.write(&folder).unwrap();
    std::fs::create_dir_all(folder.journals()).unwrap();
    begin(&folder);
    let refusal = plan("1", 3).settle(&folder, true).unwrap_err().to_string();
    let told = "has a plan of schema `rrun/plan/9`, expected `rrun/plan/3`";
    assert!(refusal.contains(told), "{refusal}");
}
