use proptest::prelude::*;
use rig::cases;
use serde_json::json;

use super::*;
use crate::file::parse;
use crate::rlinf::sections::{Cluster, Eval, Rollout};
use crate::samples;
use crate::settings::names;

fn read(texts: &[&str], sets: &[&str]) -> Result<Config, Refusal> {
    let paths = ["dir/behavior.yaml", "b.yaml"].map(PathBuf::from);
    let parsed = |(path, text): (PathBuf, &&str)| Ok((path.clone(), tree::parse(&path, text)?));
    let trees: Result<_, Refusal> = paths.into_iter().zip(texts).map(parsed).collect();
    let sets: Vec<Change> = sets
        .iter()
        .map(|set| Change::setting(set).unwrap())
        .collect();
    let variable = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
    Config::of_trees(trees?, &sets, &variable)
}

/// Returns what files, separated by `---`, and lines `--set KEY=VALUE` mean: in what a job differs
/// from the sample, which the files change if they name no environment, and the other settings.
fn meaning(given: &str) -> String {
    let (sets, text): (Vec<_>, Vec<_>) = given.lines().partition(|line| line.starts_with("--set "));
    let sets: Vec<_> = sets.iter().map(|set| &set["--set ".len()..]).collect();
    let text = text.join("\n");
    let config = match read(&text.split("---\n").collect::<Vec<_>>(), &sets) {
        Ok(config) => config,
        Err(refusal) => return refusal.to_string(),
    };
    let given = json!({"jobs": [samples::entry(json!({}))]});
    let file = match config.has_jobs() {
        true => config.jobs(None),
        false => config.jobs(Some(given)),
    };
    let job = parse(&file.unwrap()).unwrap().remove(0);
    let mut said = vec![cases::changes(&json!(samples::job(json!({}))), &json!(job))];
    said.extend(
        config
            .components
            .map(|components| format!("{components:?}")),
    );
    said.extend(config.num_nodes.map(|nodes| format!("nodes: {nodes}")));
    said.extend(
        config
            .log_path
            .map(|path| format!("log path: {}", path.display())),
    );
    if !config.unused.is_empty() {
        said.push(format!("without effect: {}", config.unused.join(", ")));
    }
    said.retain(|line| !line.is_empty());
    said.join("\n")
}

#[test]
fn files_mean_a_job_or_changes_of_given_jobs_or_are_refused() {
    cases::check("src/rlinf/cases.txt", meaning);
}

#[test]
fn a_snippet_over_a_jobs_file_holds_for_all_its_jobs() {
    let text = "env: {eval: {total_num_envs: 2, rollout_epoch: 3, seed: 5}}";
    let jobs = ["a", "b"].map(|name| samples::entry(json!({"name": name, "seed": 1})));
    let changed = read(&[text], &[])
        .unwrap()
        .jobs(Some(json!({ "jobs": jobs })));
    let jobs = parse(&changed.unwrap()).unwrap();
    let numbers = jobs.iter().map(|job| (job.num_envs, job.seed));
    assert_eq!(numbers.collect::<Vec<_>>(), [(2, Some(5)); 2]);
}

#[test]
fn settings_go_to_a_job_that_names_the_same_policy_by_another_of_its_names() {
    let chunk = |policy: &str, name: &str| {
        let text = format!("rollout: {{policy_type: {policy}, model: {{num_action_chunks: 4}}}}");
        let jobs = json!({"jobs": [samples::entry(json!({"policy_type": name}))]});
        let jobs = read(&[&text], &[]).unwrap().jobs(Some(jobs)).unwrap();
        let mut job = parse(&jobs).unwrap().remove(0);
        job.policy_config.remove("action_chunk_length")
    };
    assert_eq!(chunk("gr00t", "gr00t_closedloop"), Some(json!(4)));
    assert_eq!(chunk("gr00t_closedloop", "gr00t"), Some(json!(4)));
    assert_eq!(chunk("gr00t", "scripted"), None);
}

#[test]
fn a_checkpoint_goes_to_policies_that_have_one() {
    let config = read(&["rollout: {model: {model_path: /models/x}}"], &[]).unwrap();
    let policies = [("a", "gr00t"), ("b", "scripted")];
    let jobs =
        policies.map(|(name, policy)| samples::entry(json!({"name": name, "policy_type": policy})));
    let jobs = parse(&config.jobs(Some(json!({ "jobs": jobs }))).unwrap()).unwrap();
    assert_eq!(jobs[0].policy_config["model_path"], "/models/x");
    assert!(jobs[1].policy_config.is_empty());
}

/// The names were collected from evaluations/ and examples/embodiment/config/env/ of RLinf
/// a3816b596.
#[test]
fn no_name_of_rlinf_is_taken_for_a_misspelt_one() {
    for name in include_str!("foreign.txt").lines() {
        let config = read(&[&format!("{name}: 1")], &[]).unwrap();
        assert_eq!(config.unused, [name]);
    }
}

#[test]
fn an_empty_file_says_nothing() {
    assert_eq!(read(&["# nothing\n\n"], &[]).unwrap().jobs(None), None);
}

fn any_tree() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        "\\PC{0,8}".prop_map(serde_json::Value::from),
        Just(json!("${env.eval}")),
        Just(json!("${env.eval.seed} ${oc.env:HOME}")),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        let sections =
            ["cluster", "env", "eval", "rollout", "model", "runner", "logger", "component_placement", "jobs"];
        let known =
            [names::<Eval>(), names::<Rollout>(), names::<Cluster>(), sections.to_vec()].concat();
        let key = prop_oneof![9 => proptest::sample::select(known).prop_map(str::to_owned), 1 => "[a-z_]{1,9}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(serde_json::Value::from),
            proptest::collection::vec((key, inner), 0..6)
                .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_file_makes_the_reader_panic(text in "\\PC{0,80}", trees in proptest::collection::vec(any_tree(), 1..3)) {
        let _ = read(&[&text], &[]);
        // JSON is valid YAML.
        let texts: Vec<String> = trees.iter().map(ToString::to_string).collect();
        if let Ok(config) = read(&texts.iter().map(String::as_str).collect::<Vec<_>>(), &[]) {
            let _ = config.jobs(None).map(|jobs| parse(&jobs));
            let _ = config.jobs(Some(json!({"jobs": trees}))).map(|jobs| parse(&jobs));
        }
    }
}
