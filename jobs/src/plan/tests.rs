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
        git: None,
        begun_by: None,
        ..plan
    }
}

/// Returns a run folder in a folder of its own.
pub(super) fn folder() -> (tempfile::TempDir, RunFolder) {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    (dir, folder)
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
    let (dir, folder) = folder();
    let first = plan("1", 3).settle(&folder, false).unwrap();
    assert_eq!(asked(first.clone()), plan("1", 3));
    assert_eq!(first.id.len(), 32);
    assert_eq!(plan("1", 3).settle(&folder, false).unwrap(), first);
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, 2, "plan.json and journal, nothing else");
}

#[test]
fn a_run_keeps_the_launch_that_began_it_until_its_jobs_change() {
    let (_dir, folder) = folder();
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
        let (_dir, folder) = folder();
        plan("1", 3).settle(&folder, false).unwrap().id
    };
    assert_ne!(id(), id());
}

#[test]
fn another_run_is_refused_with_what_differs_and_leaves_the_folder_alone() {
    let (_dir, folder) = folder();
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
    let (_dir, folder) = folder();
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
    let (_dir, folder) = folder();
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

mod checked {
    use serde_json::{Value, json};

    use super::*;
    use crate::assign::Shard;
    use crate::layout::RunFolder;
    use crate::samples;

    /// Reads a plan of two jobs with these changes.
    fn read(changes: &str) -> String {
        let (_dir, folder) = folder();
        let job = |name: &str| json!({"name": name, "suite": {"name": "s", "protocol": "1"}, "latency": {"steps": 1}});
        let plan = samples::plan(
            &samples::eval_args(&[]),
            samples::jobs([job("a"), job("b")]),
        );
        let plan = rig::cases::changed(&serde_json::to_value(plan).unwrap(), changes);
        std::fs::write(folder.plan(), plan.to_string()).unwrap();
        told(&folder)
    }

    fn told(folder: &RunFolder) -> String {
        RunPlan::read(folder).map_or_else(
            |err| {
                err.to_string()
                    .replace(&folder.plan().display().to_string(), "plan.json")
            },
            |_| "accepted".to_owned(),
        )
    }

    #[test]
    fn what_no_plan_of_ours_has_is_refused() {
        rig::cases::check("src/plan/refusals.txt", read);
    }

    #[test]
    fn a_plan_of_another_version_is_refused_in_a_sentence_and_not_replaced() {
        let mut newer = json!(plan("1", 3));
        newer["schema"] = json!("rrun/plan/9");
        let plans = [
            (1, include_str!("older.json").to_owned()),
            (9, newer.to_string()),
        ];
        for (version, text) in plans {
            let (dir, folder) = folder();
            std::fs::write(folder.plan(), &text).unwrap();
            let wanted = format!(
                "run folder `{}` has a plan of schema `rrun/plan/{version}`, expected \
                 `rrun/plan/4`; choose another --output",
                dir.path().display()
            );
            assert_eq!(told(&folder), wanted);
            let settled = plan("1", 4).settle(&folder, true);
            assert_eq!(settled.unwrap_err().to_string(), wanted);
            assert_eq!(std::fs::read_to_string(folder.plan()).unwrap(), text);
        }
    }

    #[test]
    fn the_jobs_of_a_plan_are_those_of_a_jobs_file() {
        let (_dir, folder) = folder();
        let entry = json!({"name": "a", "arena_env_args": {"environment": "reach", "num_envs": 1},
                           "policy_type": "scripted", "num_episodes": 3});
        let server = json!({"command": ["serve"], "health_port": 1, "max_restarts": 3,
                            "start_timeout": 600.0, "stop_timeout": 30.0});
        let file = json!({"model_server": server, "jobs": [entry]});
        let file = crate::file::JobFile::new("jobs.json".as_ref(), String::new(), &file).unwrap();
        let plan = RunPlan::new(&samples::eval_args(&[]), file, 1, String::new());
        plan.write(&folder).unwrap();
        let written: Value =
            serde_json::from_slice(&std::fs::read(folder.plan()).unwrap()).unwrap();
        assert_eq!(written["jobs"], json!([entry]));
        assert_eq!(written["model_server"], server);
        assert_eq!(RunPlan::read(&folder).unwrap(), plan);
    }

    #[test]
    fn names_that_are_shown_are_short() {
        let long = Value::from("x".repeat(201));
        let variant = json!({"of": "b", "name": "dark", "groups": [long]});
        let told = read(&format!("jobs/0/variant = {variant}"));
        let wanted = "field variant.groups: expected names of up to 200 bytes";
        assert!(told.contains(wanted), "{told}");
        let suite = json!({"name": "s", "protocol": "1", "overrides": vec!["seed"; 65]});
        let told = read(&format!("jobs/0/suite = {suite}"));
        assert!(told.contains("job 0 (a) field suite: "), "{told}");
    }

    #[test]
    fn an_option_that_resume_does_not_take_over_is_refused() {
        let told = |name: &str| {
            let options = [(name.to_owned(), "x".to_owned())].into();
            let checked = check_options(&RunPlan {
                options,
                ..RunPlan::default()
            });
            checked.map_err(|refusal| refusal.to_string())
        };
        for name in [
            "output",
            "jobs",
            "set",
            "resume",
            "policy-device",
            "no such",
        ] {
            let refusal = told(name).unwrap_err();
            let wanted = "not an option that --resume takes over";
            assert!(refusal.contains(wanted), "{refusal}");
        }
        assert_eq!((told("no-video"), told("max-batch")), (Ok(()), Ok(())));
    }

    #[test]
    fn a_plan_that_is_no_regular_file_or_too_large_is_refused_without_being_read() {
        let (_dir, folder) = folder();
        std::os::unix::fs::symlink("/dev/zero", folder.plan()).unwrap();
        let told = || RunPlan::read(&folder).unwrap_err().to_string();
        let wanted = "it is a device, expected a regular file";
        assert!(told().contains(wanted), "{}", told());
        std::fs::remove_file(folder.plan()).unwrap();
        let sparse = std::fs::File::create(folder.plan()).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let words = "has 1099511627776 bytes, expected at most";
        assert!(told().contains(words), "{}", told());
    }

    /// Creates a folder with a run that was begun by this command line.
    fn run(begun_by: &str) -> tempfile::TempDir {
        let (dir, folder) = folder();
        let words: Vec<_> = begun_by.split(' ').collect();
        let plan = samples::plan(&samples::eval_args(&words), samples::jobs([json!({})]));
        plan.settle(&folder, false).unwrap();
        dir
    }

    /// Reads what continues the run of a folder with these words besides.
    fn resumed(dir: &tempfile::TempDir, words: &str) -> Result<EvalArgs, Refused> {
        let line = format!("--resume {} {words}", dir.path().display());
        let words: Vec<_> = line.split_whitespace().map(Into::into).collect();
        EvalArgs::read_words(&words)
    }

    #[test]
    fn a_resumed_run_keeps_its_options_but_for_those_that_are_given_and_those_that_say_where() {
        let dir = run("--seed 7 --no_video --shard episodes --policy-device cpu --max-batch=2");
        let args = resumed(&dir, "--shard=jobs --max_batch 4").unwrap();
        assert_eq!(args.seed, 7);
        assert!(args.no_video);
        assert_eq!(args.max_batch, Some(4));
        assert_eq!(args.shard, Some(Shard::Jobs));
        assert_eq!(args.policy_device, None);
        let again = resumed(&dir, "--seed 8").unwrap();
        assert_eq!((again.seed, again.shard), (8, Some(Shard::Episodes)));
    }

    #[test]
    fn a_folder_without_a_run_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let text = resumed(&dir, "").unwrap_err().to_string();
        let told = "has no plan.json, so there is no run to resume";
        assert!(text.contains(told), "{text}");
    }
}
