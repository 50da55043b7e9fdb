//! Tests with small Experiments of each form that Arena's repository has.

use rig::cases;
use serde_json::json;

use super::*;
use crate::job::Job;
use crate::refusal::Refusal;
use crate::{rules, samples};

const SHARED: &str = "
shared:
  environment: {enable_cameras: true, hdr: hall}
  environment_builder: {num_envs: 5, record_trajectories: true, placement_seed: 7}
  policy:
    type: isaaclab_arena_openpi.policy.pi0_remote_policy.Pi0RemotePolicy
    policy_variant: pi05
    policy_device: cuda:0
    remote_host: 127.0.0.1
    remote_port: 8000
    openpi_embodiment_adapter: droid
  rollout_limit: {num_episodes: 10}
  variations:
    light: {hdr_image: {enabled: true, hdr_names: [office]}}
runs:
  pear_in_bowl:
    environment: {type: tasks/pear_in_bowl.yaml}
  cube:
    environment: {type: table, hdr: garage, pick_up_object: cube}
    environment_builder: {language_instruction: Lift the cube., seed: 3}
    rollout_limit: {num_episodes: 2}
    num_rebuilds: 2
    variations: {light.hdr_image.enabled: false}
";

fn read(text: &str, changes: &[&str]) -> Result<Experiment, String> {
    let tree = tree::parse(Path::new("a.yaml"), text).map_err(|err| err.to_string())?;
    let changes: Result<Vec<Change>, _> = changes.iter().map(|text| text.parse()).collect();
    let changes = changes.map_err(|err| err.to_string())?;
    let variable = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
    Experiment::of_tree(tree, &changes, &variable).map_err(|err| err.to_string())
}

fn jobs(text: &str, changes: &[&str]) -> Vec<Job> {
    crate::file::parse(&read(text, changes).unwrap().jobs).unwrap()
}

fn refusal(text: &str, changes: &[&str]) -> String {
    read(text, changes).unwrap_err()
}

/// Returns an Experiment of one run with this field.
fn run_with(field: &str) -> String {
    let run = "environment: {type: push}, policy: {type: push}, rollout_limit: {num_episodes: 1}";
    format!("runs: {{a: {{{run}, {field}}}}}")
}

/// Returns in what the jobs of an Experiment differ from the sample, or why it is refused. A line
/// `SHARED` stands for that Experiment, and `$ ` is before words of the command line.
fn meaning(given: &str) -> String {
    let (changes, text): (Vec<_>, Vec<_>) = given.lines().partition(|line| line.starts_with("$ "));
    let changes: Vec<_> = changes.iter().map(|change| &change[2..]).collect();
    let text = text.join("\n").replace("SHARED", SHARED);
    let experiment = match read(&text, &changes) {
        Ok(experiment) => experiment,
        Err(refusal) => return refusal,
    };
    let jobs = match crate::file::parse(&experiment.jobs) {
        Ok(jobs) => jobs,
        Err(refusal) => return refusal.to_string(),
    };
    let sample = json!(samples::job(json!({})));
    let mut said: Vec<_> = jobs
        .iter()
        .map(|job| cases::changes(&sample, &json!(job)))
        .collect();
    if !experiment.unused.is_empty() {
        said.push(format!("without effect: {}", experiment.unused.join(", ")));
    }
    said.join("\n")
}

#[test]
fn an_experiment_and_changes_of_the_command_line_mean_jobs_or_are_refused() {
    cases::check("src/experiment/cases.txt", meaning);
}

#[test]
fn policies_of_arena_are_ours_with_their_settings() {
    let job = jobs(SHARED, &[]).remove(0);
    let policy = crate::policies::PolicyType::of(&job.policy_type).unwrap();
    assert_eq!(policy.name(), "pi0_remote");
    assert_eq!(crate::policies::check(policy, &job.policy_config), Ok(()));
    assert!(!job.policy_config.contains_key("type"));
    cases::check("src/experiment/policies.txt", |theirs| {
        let change = format!("runs.a.policy.type={theirs}");
        let job = jobs(&run_with("num_rebuilds: 1"), &[&change]).remove(0);
        crate::policies::canonical_policy(&job.policy_type).to_owned()
    });
}

fn known(jobs: &[Job]) -> Result<(), Refusal> {
    rules::check(jobs, Path::new("a.yaml"))
}

#[test]
fn an_environment_of_arena_is_known_if_a_factory_makes_it() {
    let factory = "shared.environment.factory=arena_env.py:make";
    assert_eq!(known(&jobs(SHARED, &[factory])), Ok(()));
    let told = known(&jobs(SHARED, &[])).unwrap_err().to_string();
    let wanted = "environment.type: `tasks/pear_in_bowl.yaml` is not included";
    assert!(told.contains(wanted), "{told}");
}

#[test]
fn one_anchor_may_be_repeated_by_very_many_runs() {
    let run = "environment: {type: push}, policy: *p, rollout_limit: *l";
    let again: String = (1..400)
        .map(|number| format!("  r{number}: {{{run}}}\n"))
        .collect();
    let first = run.replace("*p", "&p {type: zero_action}");
    let first = first.replace("*l", "&l {num_episodes: 2}");
    let jobs = jobs(&format!("runs:\n  r0: {{{first}}}\n{again}"), &[]);
    assert_eq!(jobs.len(), 400);
    assert!(jobs.iter().all(|job| job.policy_type == "zero_action"));
}

#[test]
fn what_a_small_file_repeats_has_a_limit() {
    let long = "x".repeat(1 << 20);
    let runs: String = (0..100).map(|run| format!("  r{run}: {{}}\n")).collect();
    let text = format!("shared:\n  environment: {{type: {long}}}\nruns:\n{runs}");
    assert!(refusal(&text, &[]).contains("bytes in 100 runs are more than"));

    let names = "'${shared.s}',".repeat(100);
    let text = format!(
        "shared: {{s: {long}}}\nruns: {{a: {{environment: {{type: a, l: [{names}]}}, \
                        policy: {{type: p}}}}}}"
    );
    assert!(refusal(&text, &[]).contains("`${shared.s}` cannot be resolved"));
    let itself = "shared: {s: {a: '${shared.s}', b: '${shared.s}'}}\n\
                  runs: {a: {environment: '${shared.s}', policy: {type: p}}}";
    assert!(refusal(itself, &[]).contains("cannot be resolved"));

    let deep = format!("{}: 1", vec!["a"; 500].join("."));
    let text = run_with(&format!("variations: {{{deep}}}"));
    assert!(read(&text, &[]).is_ok(), "such a name is one name");
}

#[test]
fn bombs_nesting_and_two_runs_of_one_name_are_refused_by_the_parser() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (above, name) in ('a'..='y').zip('b'..='z') {
        let repeated = vec![format!("*{above}"); 9].join(", ");
        bomb.push_str(&format!("{name}: &{name} [{repeated}]\n"));
    }
    bomb.push_str("runs: {a: {environment: {type: push, l: *z}, policy: {type: p}}}");
    let nested = format!("runs: {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    for text in [&bomb, &nested, "runs: {a: {}, a: {}}"] {
        let refused = refusal(text, &[]);
        let is_the_parsers = refused.starts_with("`a.yaml`: ");
        assert!(is_the_parsers, "not its reader's: {refused}");
    }
}
