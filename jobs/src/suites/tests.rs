use std::collections::BTreeSet;
use std::path::Path;

use rig::cases;
use serde_json::json;

use super::*;
use crate::file::parse;
use crate::job::{Job, Length};
use crate::{rules, samples};

fn request() -> Request {
    Request {
        policy_type: "random_action".to_owned(),
        num_envs: 2,
        ..Request::default()
    }
}

fn jobs(suite: &SuiteRow, request: &Request) -> Vec<Job> {
    let file = suite.jobs_file(request, "venv").unwrap();
    parse(&file).unwrap_or_else(|err| panic!("{}: {err}", suite.name))
}

/// The numbers as they stand in the sources that the rows name; read there, not here.
///
/// OpenVLA `run_libero_eval.py`: `num_trials_per_task: int = 50`, `seed: int = 7`, `max_steps` of
/// each suite. LIBERO-PRO README.md: `TASK_MAX_STEPS`. metaworld 3.1.1 `evaluation.py`:
/// `num_episodes: int = 50`; `sawyer_xyz_env.py`: `max_path_length: int = 500`. LeRobot:
/// `n_episodes: int = 50`, `seed: int | None = 1000`, `episode_length: int = 400` of `AlohaEnv` and
/// 300 of `PushtEnv`. gymnasium-robotics: `max_episode_steps=50`.
#[test]
fn jobs_have_the_numbers_of_the_authors() {
    let mut names = Vec::new();
    cases::evidence("src/suites/authors.txt", |name| {
        names.push(name.to_owned());
        let suite = SuiteRow::of(name).unwrap();
        let jobs = jobs(suite, &request());
        let numbers = |job: &Job| {
            let steps = &job.env_args["max_episode_steps"];
            format!("{:?} of {steps} steps, seed {:?}", job.length, job.seed)
        };
        let numbers: BTreeSet<_> = jobs.iter().map(numbers).collect();
        let numbers = Vec::from_iter(numbers).join("; ");
        format!("{} tasks, {numbers}", jobs.len())
    });
    let all: Vec<_> = SuiteRow::all().map(|suite| &suite.name).collect();
    assert_eq!(all, names.iter().collect::<Vec<_>>());
}

#[test]
fn every_file_is_accepted_and_planned_with_its_suite() {
    let args = samples::eval_args(&[]);
    for suite in SuiteRow::all() {
        let jobs = jobs(suite, &request());
        let names = rules::check(&jobs, Path::new("jobs.json"));
        names.unwrap_or_else(|err| panic!("{err}"));
        rules::check_to_run(&jobs, &args).unwrap_or_else(|err| panic!("{err}"));
        for job in &samples::plan(&args, jobs).jobs {
            let label = job.suite.as_ref().unwrap();
            assert_eq!(label.name.as_str(), suite.name);
            assert_eq!(label.protocol.as_str(), suite.protocol);
            assert!(label.overrides.is_empty(), "{label:?}");
        }
    }
}

#[test]
fn files_that_jobs_name_come_with_the_program() {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    for suite in SuiteRow::all() {
        for job in jobs(suite, &request()) {
            let written = serde_json::to_string(&job.env_args).unwrap();
            assert_eq!(written.matches("\"{").count(), 0, "{written}");
            let (factory, _) = job.environment.split_once(':').unwrap();
            let mapping = job.env_args["mapping"].as_str().unwrap();
            for path in [factory, mapping] {
                assert!(root.join(path).is_file(), "{}: {path}", job.name);
            }
        }
        let pins = format!("jobs/suites/simulators/{}.txt", suite.simulator);
        assert!(root.join(&pins).is_file(), "{}: {pins}", suite.name);
    }
}

#[test]
fn names_of_suites_tasks_and_jobs_differ() {
    let mut names = BTreeSet::new();
    for suite in SuiteRow::all() {
        assert!(names.insert(&suite.name), "{}", suite.name);
        let tasks: BTreeSet<_> = suite.tasks.iter().collect();
        assert_eq!(tasks.len(), suite.tasks.len(), "{}", suite.name);
        let is_number = |task: &String| task.contains(',') || task.parse::<u64>().is_ok();
        assert!(!suite.tasks.iter().any(is_number), "{}", suite.name);
    }
}

#[test]
fn what_replaces_the_protocol_is_recorded() {
    let suite = SuiteRow::of("gym_pusht").unwrap();
    let changed = Request {
        episodes: Some(10),
        max_episode_steps: Some(20),
        seed: Some(5),
        mapping: Some("mine.yaml".to_owned()),
        ..request()
    };
    let job = &jobs(suite, &changed)[0];
    assert_eq!(job.length, Length::Episodes(10));
    assert_eq!(job.env_args["max_episode_steps"], 20);
    assert_eq!(job.env_args["mapping"], "mine.yaml");
    assert_eq!(job.env_args["env_kwargs"]["first_seed"], 5);
    assert_eq!(job.env_args["env_kwargs"]["max_episode_steps"], 20);
    let label = job.suite.as_ref().unwrap();
    let replaced = ["num_episodes", "max_episode_steps", "seed"];
    assert_eq!(label.overrides, replaced);
}

#[test]
fn some_tasks_are_marked_as_such_and_the_protocols_own_numbers_are_not() {
    let suite = SuiteRow::of("metaworld_mt10").unwrap();
    let some = Request {
        tasks: Some("push-v3".to_owned()),
        episodes: Some(50),
        seed: Some(0),
        ..request()
    };
    let jobs = jobs(suite, &some);
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].name, "metaworld_mt10_push-v3");
    assert_eq!(jobs[0].env_args["env_kwargs"]["task"], json!("push-v3"));
    assert_eq!(jobs[0].suite.as_ref().unwrap().overrides, ["tasks"]);
}

#[test]
fn tasks_are_chosen_by_number_range_and_name_or_refused() {
    let suite = SuiteRow::of("metaworld_mt10").unwrap();
    let chosen = |text: &str| suite.some_tasks(text).map_err(|err| err.to_string());
    cases::check("src/suites/choices.txt", |text| match chosen(text) {
        Ok(tasks) => format!("{tasks:?}"),
        Err(refusal) => refusal,
    });
    assert!(chosen("").is_err());
}
