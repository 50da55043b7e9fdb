use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::journal::{Journal, Line, RankStart};
use crate::plan::settle;
use crate::plan::tests::folder;
use crate::rank_env::RankEnv;
use crate::refusal::Refusal;
use crate::samples;

/// Returns a plan of jobs with these names, numbers of episodes and instructions.
fn plan(jobs: &[(&str, u64, &str)]) -> RunPlan {
    let entry = |(name, episodes, words): &(&str, u64, &str)| json!({"name": name, "num_episodes": episodes, "language_instruction": words});
    let jobs = samples::jobs(jobs.iter().map(entry));
    samples::plan(&samples::eval_args(&[]), jobs)
}

fn episode(job: (usize, &str), number: u64) -> Line {
    samples::episode(job.0, job.1, number).into()
}

/// Begins a run of `a` (episodes 0 to 3), `b` (0 to 3) and `c` (0) on two ranks, with a file of
/// each job and a report.
fn begun(folder: &RunFolder) -> RunPlan {
    let before = plan(&[("a", 4, ""), ("b", 4, ""), ("c", 4, "")]);
    let before = before.settle(folder, false).unwrap();
    let lines = [(0, 0, "a", 0..4), (1, 1, "b", 0..4), (0, 2, "c", 0..1)];
    for rank in 0..2 {
        let mut journal = Journal::open(&folder.journal(rank)).unwrap();
        let start = RankStart {
            rank,
            world_size: 2,
            ..RankStart::default()
        };
        journal.append(&Line::Rank(Box::new(start))).unwrap();
        for (_, index, name, episodes) in lines.iter().filter(|(of, ..)| *of == rank) {
            for number in episodes.clone() {
                journal.append(&episode((*index, name), number)).unwrap();
            }
        }
    }
    for name in ["a", "b", "c"] {
        fs::create_dir(folder.job(name)).unwrap();
        fs::write(folder.job(name).join("dataset"), name).unwrap();
    }
    fs::write(folder.report(), "{}").unwrap();
    before
}

/// The new plan: `b` is longer, `a` has changed, `c` is gone, `d` is new.
fn now() -> RunPlan {
    plan(&[("d", 2, ""), ("b", 6, ""), ("a", 4, "other words")])
}

/// Returns every file with its text.
fn files(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            match path.is_dir() {
                true => folders.push(path),
                false => drop(found.insert(name, fs::read_to_string(&path).unwrap())),
            }
        }
    }
    found
}

fn done(folder: &RunFolder) -> BTreeMap<String, BTreeSet<u64>> {
    settle::done(&folder.journals()).unwrap()
}

/// The finished episodes that stay with the new plan.
fn stays() -> BTreeMap<String, BTreeSet<u64>> {
    BTreeMap::from([("b".to_owned(), (0..4).collect())])
}

#[test]
fn what_stays_stays_finished_and_nothing_that_was_written_is_lost() {
    let (dir, folder) = folder();
    let before = begun(&folder);
    let old = files(dir.path());
    let notes = now().check(&folder, true).unwrap();
    assert_eq!(
        notes,
        [
            "changed: a: language_instruction \"\" → \"other words\"",
            "changed: b: num_episodes 4 → 6",
            "changed: d: new",
            "changed: c: removed",
            &format!(
                "4 finished episodes stay; 5 of 2 jobs (a, c) move to `{}`",
                folder.superseded().display()
            ),
        ]
    );
    assert_eq!(files(dir.path()), old, "checking writes nothing");
    let settled = now().settle(&folder, true).unwrap();
    assert_eq!((&settled.id, settled.jobs.len()), (&before.id, 3));
    assert_eq!(done(&folder), stays());
    let all = files(dir.path());
    let moved: BTreeSet<_> = ["a/dataset", "c/dataset", "report.json"].into();
    for (name, text) in &old {
        let is_moved = moved.contains(name.as_str());
        let copied = name.starts_with("journal/") || name == "plan.json";
        let place = if is_moved || copied {
            format!("superseded/1/{name}")
        } else {
            name.clone()
        };
        assert_eq!(all.get(&place), Some(text), "{name}");
        assert_eq!(all.contains_key(name), !is_moved, "{name}");
    }
    assert_eq!(all.keys().filter(|name| name.contains("/.")).count(), 0);
    let again = now().settle(&folder, true).unwrap();
    assert_eq!(again, settled, "and that once");
    let old = RunFolder::new(&folder.superseded().join("1"));
    assert_eq!(RunPlan::read(&old).unwrap(), before);
}

#[test]
fn an_episode_with_several_lines_is_counted_once() {
    let (_dir, folder) = folder();
    begun(&folder);
    for rank in 0..2 {
        let mut journal = Journal::open(&folder.journal(rank)).unwrap();
        for (job, number) in [((0, "a"), 3), ((1, "b"), 0), ((1, "b"), 0)] {
            journal.append(&episode(job, number)).unwrap();
        }
    }
    let notes = now().check(&folder, true).unwrap();
    let told = notes.last().unwrap();
    let wanted = "4 finished episodes stay; 5 of 2 jobs (a, c) move to";
    assert!(told.starts_with(wanted), "{told}");
}

#[test]
fn what_cannot_be_read_counts_as_results_and_a_start_or_a_torn_line_does_not() {
    for (case, text, counts) in [
        ("a start", &b""[..], false),
        ("a torn line", b"{\"type\":\"epi", false),
        ("a damaged line", b"{\"type\":\"epi\n", true),
        ("bytes", b"\xff\n", true),
        ("a folder", b"", true),
    ] {
        let (_dir, folder) = folder();
        plan(&[("a", 4, "")]).settle(&folder, false).unwrap();
        let mut journal = Journal::open(&folder.journal(0)).unwrap();
        journal.append(&Line::Rank(Box::default())).unwrap();
        drop(journal);
        let written = fs::read(folder.journal(0)).unwrap();
        fs::write(folder.journal(0), [&written[..], text].concat()).unwrap();
        if case == "a folder" {
            fs::create_dir(folder.journal(1)).unwrap();
        }
        let checked = now().check(&folder, false);
        let is_other = |err: &Refusal| err.to_string().contains("contains a different run");
        assert_eq!(checked.as_ref().is_err_and(is_other), counts, "{case}");
        let settled = now().settle(&folder, false);
        assert_eq!(settled.as_ref().is_err_and(is_other), counts, "{case}");
        assert_eq!(settled.is_ok(), !counts, "{case}");
    }
}

#[test]
fn whatever_is_killed_when_all_of_it_is_done_or_nothing() {
    let whole = tempfile::tempdir().unwrap();
    begun(&RunFolder::new(whole.path()));
    now().settle(&RunFolder::new(whole.path()), true).unwrap();
    let wanted: BTreeSet<String> = files(whole.path()).into_keys().collect();
    for made in 0..=5 {
        let (dir, folder) = folder();
        let before = begun(&folder);
        let next = now();
        let decided = decide(&folder, now(), &Difference::between(&before, &next)).unwrap();
        let (to, jobs) = (
            superseded(&folder, 1),
            ["a", "c"].map(|name| folder.job(name)),
        );
        let leaving = jobs.into_iter().chain([folder.report(), folder.journals()]);
        leaving
            .take(made)
            .for_each(|path| away(&path, &to).unwrap());
        if made == 5 {
            let moving = decided.moving.as_ref().unwrap();
            carry(&next, moving, [&to.journals(), &folder.journals()]).unwrap();
        }
        let notes = now().check(&folder, false).unwrap();
        assert!(notes.is_empty(), "it is seen after {made} moves: {notes:?}");
        let other = plan(&[("a", 9, "")]).check(&folder, false);
        assert!(other.is_err(), "results would be lost after {made} moves");
        let again = now().settle(&folder, false).unwrap();
        assert_eq!(done(&folder), stays(), "{made}");
        let found: BTreeSet<String> = files(dir.path()).into_keys().collect();
        assert_eq!(found, wanted, "{made}");
        assert_eq!((again.jobs, again.moving), (next.jobs, None));
    }
}

#[test]
fn a_link_in_the_place_of_superseded_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = dir.path().join("elsewhere");
    let folder = RunFolder::new(&dir.path().join("run"));
    let before = begun(&folder);
    fs::create_dir_all(elsewhere.join("1")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, folder.superseded()).unwrap();
    let refused = |plan: RunPlan| {
        let told = plan.settle(&folder, true).unwrap_err().to_string();
        let wanted = "it is not a folder, or it is a link to one";
        assert!(told.contains(wanted), "{told}");
        assert_eq!(files(&elsewhere), BTreeMap::new());
    };
    refused(now());
    // Another user may have written that a move was interrupted.
    let (to, jobs) = (1, vec!["a".to_owned()]);
    let moving = Some(Moving { to, jobs });
    let theirs = RunPlan { moving, ..before };
    theirs.write(&folder).unwrap();
    refused(RunPlan {
        moving: None,
        ..theirs
    });
    assert!(folder.job("a").exists());
}

#[test]
fn what_was_prepared_and_not_decided_on_is_in_nobodys_way() {
    let (_dir, folder) = folder();
    let before = begun(&folder);
    // A process that is killed before it decides leaves this.
    let prepared = superseded(&folder, 1);
    fs::create_dir_all(prepared.root()).unwrap();
    fs::write(prepared.plan(), "{}").unwrap();
    let same = plan(&[("a", 4, ""), ("b", 4, ""), ("c", 4, "")]);
    assert_eq!(same.settle(&folder, false).unwrap(), before);
    now().settle(&folder, true).unwrap();
    assert_eq!(RunPlan::read(&prepared).unwrap(), before);
    assert!(!superseded(&folder, 2).root().exists());
}

#[test]
fn a_folder_that_somebody_works_in_is_left_alone() {
    let (_dir, folder) = folder();
    begun(&folder);
    let _busy = Journal::open(&folder.journal(1)).unwrap();
    let refusal = now().settle(&folder, true).unwrap_err().to_string();
    let told = "another evaluation is running in";
    assert!(refusal.starts_with(told), "{refusal}");
    assert!(!folder.superseded().exists());
}

#[test]
fn a_second_change_goes_to_a_folder_of_its_own_and_the_next_start_says_what_changed() {
    let (_dir, folder) = folder();
    begun(&folder);
    now().settle(&folder, true).unwrap();
    let shorter = || plan(&[("b", 2, "")]);
    let mut settled = shorter().settle(&folder, true).unwrap();
    assert_eq!(
        done(&folder),
        BTreeMap::from([("b".to_owned(), [0, 1].into())])
    );
    let second = folder.superseded().join("2");
    assert!(second.join("plan.json").exists() && !second.join("a").exists());
    let env = RankEnv::read(|_| None).unwrap();
    drop(settled.open_journal(&folder, &env).unwrap());
    let resumed = &RunPlan::read(&folder).unwrap().resumed_from;
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0].changed.len(), 4 + 2, "{:?}", resumed[0].changed);
    let mut again = shorter().settle(&folder, false).unwrap();
    drop(again.open_journal(&folder, &env).unwrap());
    let resumed = RunPlan::read(&folder).unwrap().resumed_from;
    let changes: Vec<_> = resumed.iter().map(|start| start.changed.len()).collect();
    assert_eq!(changes, [6, 0]);
}

#[test]
fn another_order_keeps_that_of_the_run_and_another_number_of_environments_is_taken() {
    let (_dir, folder) = folder();
    let before = begun(&folder);
    let mut other = plan(&[("c", 4, ""), ("b", 4, ""), ("a", 4, "")]);
    other.jobs[2].num_envs = 8;
    assert_eq!(other.check(&folder, false).unwrap().len(), 1);
    let settled = other.settle(&folder, false).unwrap();
    let jobs = settled.jobs.iter();
    let envs: Vec<_> = jobs
        .map(|job| (job.name.as_str(), job.index.0, job.num_envs))
        .collect();
    assert_eq!(envs, [("a", 0, 8), ("b", 1, 1), ("c", 2, 1)]);
    assert_eq!(settled.id, before.id);
    assert_eq!(RunPlan::read(&folder).unwrap(), settled);
    assert!(!folder.superseded().exists());
}

#[test]
fn a_plan_that_another_evaluation_changed_meanwhile_is_noticed() {
    let (_dir, folder) = folder();
    let mut before = begun(&folder);
    now().settle(&folder, true).unwrap();
    let env = RankEnv::read(|_| None).unwrap();
    let refusal = before.open_journal(&folder, &env).unwrap_err().to_string();
    let told = "was changed by another evaluation while this one started";
    assert!(refusal.ends_with(told), "{refusal}");
}

/// Generates any choice and order of the jobs `a` to `d`, with numbers of episodes and
/// instructions.
fn any_jobs() -> impl Strategy<Value = Vec<(&'static str, u64, &'static str)>> {
    let job = (
        any::<bool>(),
        1u64..6,
        prop_oneof![3 => Just(""), 1 => Just("x")],
    );
    let shuffled = Just(vec!["a", "b", "c", "d"]).prop_shuffle();
    (proptest::collection::vec(job, 4), shuffled).prop_map(|(jobs, names)| {
        let named = names.into_iter().zip(jobs).filter(|(_, job)| job.0);
        let mut jobs: Vec<_> = named
            .map(|(name, (_, episodes, words))| (name, episodes, words))
            .collect();
        if jobs.is_empty() {
            jobs.push(("e", 1, ""));
        }
        jobs
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn exactly_the_episodes_whose_results_would_be_the_same_stay(
        before in any_jobs(), after in any_jobs(), ran in proptest::collection::vec((0usize..4, 0u64..6), 1..12)
    ) {
        let (_dir, folder) = folder();
        plan(&before).settle(&folder, false).unwrap();
        let ran: BTreeSet<_> = ran.into_iter().filter(|(job, e)| before.get(*job).is_some_and(|j| *e < j.1)).collect();
        let mut journal = Journal::open(&folder.journal(0)).unwrap();
        journal.append(&Line::Rank(Box::default())).unwrap();
        ran.iter().for_each(|(job, e)| journal.append(&episode((*job, before[*job].0), *e)).unwrap());
        drop(journal);
        plan(&after).settle(&folder, true).unwrap();
        let wanted: BTreeSet<_> = ran
            .iter()
            .map(|(job, e)| (before[*job], *e))
            .filter(|((name, _, words), e)| after.iter().any(|j| j.0 == *name && j.2 == *words && *e < j.1))
            .map(|((name, ..), e)| (name.to_owned(), e))
            .collect();
        let found: BTreeSet<_> =
            done(&folder).into_iter().flat_map(|(j, es)| es.into_iter().map(move |e| (j.clone(), e))).collect();
        prop_assert_eq!(found, wanted);
    }
}
