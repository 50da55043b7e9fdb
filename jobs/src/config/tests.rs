use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::file::parse;
use crate::job::Length;
use crate::placement::{Placement, Resources};

fn read(texts: &[&str]) -> Result<Config, String> {
    let name = |nth: usize| PathBuf::from(["dir/behavior.yaml", "b.yaml"][nth]);
    let texts = texts
        .iter()
        .enumerate()
        .map(|(nth, text)| (name(nth), (*text).to_owned()))
        .collect();
    let variable = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
    Config::from_texts(texts, &[], &variable).map_err(|err| err.to_string())
}

/// Reads one text with settings of the command line applied over it.
fn set(text: &str, sets: &[&str]) -> Result<Config, String> {
    let sets: Vec<Override> = sets.iter().map(|set| set.parse().unwrap()).collect();
    let texts = vec![(PathBuf::from("dir/behavior.yaml"), text.to_owned())];
    Config::from_texts(texts, &sets, &|_| None).map_err(|err| err.to_string())
}

#[test]
fn settings_of_the_command_line_win_and_do_not_rename_the_job() {
    let config = set(
        BASE,
        &[
            "env.eval.total_num_envs=8",
            "env.eval.environment=push",
            "env.eval.total_num_envs=4",
        ],
    )
    .unwrap();
    let jobs = parse(&config.jobs(None).unwrap()).unwrap();
    assert_eq!(
        (
            jobs[0].name.as_str(),
            jobs[0].environment.as_str(),
            jobs[0].num_envs
        ),
        ("behavior", "push", 4)
    );
    let config = set(BASE, &["cluster.component_placement={env: 0, rollout: 1}"]).unwrap();
    assert_eq!(
        config.components.unwrap(),
        Components::parse("env: 0, rollout: 1").unwrap()
    );
}

#[test]
fn a_setting_of_the_command_line_that_nobody_knows_or_needs_is_refused() {
    let refusal = |text: &str| set(BASE, &[text]).unwrap_err();
    assert_eq!(
        refusal("env.eval.total_num_env=8"),
        "`--set`: env.eval: unknown field `total_num_env`; did you mean `total_num_envs`?"
    );
    assert_eq!(
        refusal("env.evil.total_num_envs=8"),
        "`--set`: env.evil.total_num_envs: it has no effect here; did you mean \
         `env.eval.total_num_envs`?"
    );
    assert_eq!(
        refusal("runner.max_epochs=8"),
        "`--set`: runner.max_epochs: it has no effect here"
    );
    assert_eq!(
        refusal("actor.model.lr=8"),
        "`--set`: actor.model.lr: it has no effect here"
    );
}

fn refusal(text: &str) -> String {
    read(&[text]).unwrap_err()
}

const BASE: &str = "
env:
  eval:
    environment: reach
    max_episode_steps: 60
    env_args: {camera_height: 64}
rollout:
  policy_type: scripted
  model: {num_action_chunks: 4}
";

#[test]
fn a_snippet_over_a_base_is_one_job_called_after_the_base() {
    let snippet = "
cluster:
  component_placement:
    env: 0-1      # two workers
    rollout: 2-3
env:
  eval:
    total_num_envs: 4
";
    let config = read(&[BASE, snippet]).unwrap();
    let jobs = parse(&config.jobs(None).unwrap()).unwrap();
    let job = &jobs[0];
    assert_eq!(
        (
            job.name.as_str(),
            job.environment.as_str(),
            job.policy_type.as_str()
        ),
        ("behavior", "reach", "scripted")
    );
    assert_eq!((job.num_envs, job.length), (4, Length::Episodes(4)));
    assert_eq!(
        job.env_args,
        *json!({"camera_height": 64, "max_episode_steps": 60})
            .as_object()
            .unwrap()
    );
    assert_eq!(job.policy_config["action_chunk_length"], 4);
    let placement = Placement::new(&config.components.unwrap(), Resources::new(4, 1)).unwrap();
    assert_eq!((placement.env.len(), placement.rollout[1].gpu()), (2, 3));
}

#[test]
fn a_snippet_over_a_jobs_file_holds_for_all_its_jobs() {
    let config = read(&["env: {eval: {total_num_envs: 2, rollout_epoch: 3, seed: 5}}"]).unwrap();
    let entry = |name: &str| {
        json!({"name": name, "arena_env_args": {"environment": "reach", "num_envs": 4},
                                    "policy_type": "scripted", "num_episodes": 20, "seed": 1})
    };
    let jobs = parse(
        &config
            .jobs(Some(json!({"jobs": [entry("a"), entry("b")]})))
            .unwrap(),
    )
    .unwrap();
    let facts: Vec<_> = jobs
        .iter()
        .map(|job| (job.num_envs, job.length, job.seed))
        .collect();
    assert_eq!(facts, [(2, Length::Episodes(6), Some(5)); 2]);
}

#[test]
fn a_jobs_own_length_stays_unless_the_config_sets_epochs() {
    let entry = json!({"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": 20});
    let jobs = json!({"jobs": [entry]});
    let length = |text: &str| {
        parse(&read(&[text]).unwrap().jobs(Some(jobs.clone())).unwrap()).unwrap()[0].length
    };
    assert_eq!(
        length("env: {eval: {total_num_envs: 2}}"),
        Length::Episodes(20)
    );
    assert_eq!(
        length("algorithm: {eval_rollout_epoch: 4}"),
        Length::Episodes(4)
    );
    let steps = "env: {eval: {auto_reset: True, max_steps_per_rollout_epoch: 50}}";
    assert_eq!(length(steps), Length::Steps(50));
}

#[test]
fn a_checkpoint_goes_to_policies_that_have_one() {
    let config = read(&["rollout: {model: {model_path: /models/x}}"]).unwrap();
    let entry = |name: &str, policy: &str| {
        json!({"name": name, "arena_env_args": {"environment": "reach"},
                                                  "policy_type": policy, "num_episodes": 1})
    };
    let jobs = parse(
        &config
            .jobs(Some(
                json!({"jobs": [entry("a", "gr00t"), entry("b", "scripted")]}),
            ))
            .unwrap(),
    )
    .unwrap();
    assert_eq!(jobs[0].policy_config["model_path"], "/models/x");
    assert!(jobs[1].policy_config.is_empty());
}

#[test]
fn settings_go_to_a_job_that_names_the_same_policy_by_another_of_its_names() {
    let model = "model: {model_path: /models/x, num_action_chunks: 4}";
    let config = |policy: &str| read(&[&format!("rollout: {{policy_type: {policy}, {model}}}")]);
    let chunk = |policy: &str, name: &str| {
        let entry = json!({"name": "a", "arena_env_args": {"environment": "reach"},
                           "policy_type": name, "num_episodes": 1});
        let jobs = config(policy).unwrap().jobs(Some(json!({"jobs": [entry]})));
        let mut job = parse(&jobs.unwrap()).unwrap().remove(0);
        job.policy_config.remove("action_chunk_length")
    };
    assert_eq!(chunk("gr00t", "gr00t_closedloop"), Some(json!(4)));
    assert_eq!(chunk("gr00t_closedloop", "gr00t"), Some(json!(4)));
    assert_eq!(chunk("gr00t", "scripted"), None);
}

#[test]
fn later_files_win_and_keys_with_dots_are_paths() {
    let first = "env: {eval: {environment: reach, video_cfg: {save_video: True, fps: 10}, total_num_envs: 8}}";
    let config = read(&[
        first,
        "env.eval.video_cfg.save_video: False\nenv: {eval: {total_num_envs: 2}}",
    ])
    .unwrap();
    assert_eq!(
        config.over["video_cfg"],
        json!({"save_video": false, "fps": 10})
    );
    assert_eq!(config.over["total_num_envs"], 2);
}

#[test]
fn a_later_placement_wins_by_component_whatever_names_were_joined() {
    let first = "cluster: {component_placement: {'env,rollout': all}}";
    let config = read(&[first, "cluster: {component_placement: {env: 0}}"]).unwrap();
    assert_eq!(
        config.components.unwrap(),
        Components::parse("env: 0, rollout: all").unwrap()
    );
}

#[test]
fn references_are_followed_where_they_are_needed() {
    let text = "
runner: {logger: {log_path: '${oc.env:HOME}/logs/behavior_eval'}}
env:
  eval:
    max_steps_per_rollout_epoch: ${env.eval.max_episode_steps}
    max_episode_steps: 96
    video_cfg: {video_base_dir: '${runner.logger.log_path}/video/eval'}
hydra: {searchpath: ['file://${oc.env:EMBODIED_PATH}/config/']}
";
    let config = read(&[text]).unwrap();
    assert_eq!(config.log_path, Some("/home/me/logs/behavior_eval".into()));
    assert_eq!(
        config.over["video_cfg"]["video_base_dir"],
        "/home/me/logs/behavior_eval/video/eval"
    );
    assert_eq!(config.over["max_steps_per_rollout_epoch"], 96);
    assert_eq!(
        refusal("runner: {logger: {log_path: '${oc.env:NOWHERE}/x'}}"),
        "`dir/behavior.yaml`: runner.logger field log_path: `${oc.env:NOWHERE}` cannot be resolved"
    );
}

#[test]
fn references_in_a_circle_end() {
    assert!(
        refusal("env: {eval: {seed: '${env.eval.group_size}', group_size: '${env.eval.seed}'}}")
            .contains("cannot be resolved")
    );
}

#[test]
fn a_misspelt_setting_is_refused_with_the_nearest_name_and_its_file() {
    let both = read(&["env: {eval: {total_num_env: 4}}", "env: {eval: {seed: 1}}"]).unwrap_err();
    assert_eq!(
        both,
        "`dir/behavior.yaml`: env.eval: unknown field `total_num_env`; did you mean `total_num_envs`?"
    );
    assert!(
        refusal("clusters: {}")
            .ends_with("top level: unknown field `clusters`; did you mean `cluster`?")
    );
    assert!(refusal("cluster: {num_node: 1}").contains("did you mean `num_nodes`?"));
    assert!(
        refusal("rollout: {pipeline_stages: 1}").contains("did you mean `pipeline_stage_num`?")
    );
    assert!(
        refusal("env: {eval: {video_cfg: {save_vido: True}}}")
            .contains("did you mean `save_video`?")
    );
}

#[test]
fn wrong_values_are_refused() {
    for (text, reason) in [
        (
            "env: 3",
            "`dir/behavior.yaml`: env: found 3, expected an object",
        ),
        (
            "- 1",
            "`dir/behavior.yaml`: expected a mapping at the top level",
        ),
        ("env: {eval: [", "`dir/behavior.yaml`: "),
        (
            "cluster: {node_groups: [{label: a}]}",
            "cluster field node_groups: node groups are not supported",
        ),
        (
            "cluster: {component_placement: {env: {node_group: a}}}",
            "component_placement env: `node_group` is not supported",
        ),
        (
            "cluster: {component_placement: {env: 0, 'env,rollout': 1}}",
            "`env` is placed twice",
        ),
        (
            "env: {eval: {environment: reach, env_type: push}}",
            "`reach` is given together with env_type `push`",
        ),
    ] {
        let found = refusal(text);
        assert!(found.contains(reason), "{text}: {found}");
    }
}

#[test]
fn an_evaluation_of_rlinf_is_accepted_and_what_is_not_used_is_counted_up() {
    // evaluations/libero/libero_10_openpi_pi05_eval.yaml, a3816b596, abridged.
    let text = "
defaults: [env/libero_10@env.eval, override hydra/job_logging: stdout]
hydra: {run: {dir: .}}
cluster:
  num_nodes: 1
  component_placement:
    env,rollout: all
runner:
  task_type: embodied_eval
  logger: {log_path: ../results, project_name: rlinf, logger_backends: [tensorboard]}
  max_steps: -1
env:
  group_name: EnvGroup
  eval:
    rollout_epoch: 1
    total_num_envs: 500
    auto_reset: True
    ignore_terminations: True
    max_episode_steps: 520
    max_steps_per_rollout_epoch: 520
    is_eval: True
    video_cfg: {save_video: True, video_base_dir: '${runner.logger.log_path}/video/eval', info_on_video: True}
rollout:
  generation_backend: huggingface
  enable_offload: False
  pipeline_stage_num: 1
  model: {model_path: /path/to/model, model_type: openpi, num_action_chunks: 5, openpi: {noise_level: 0.3}}
";
    let config = read(&[text]).unwrap();
    assert_eq!(
        (config.num_nodes, config.log_path),
        (Some(1), Some("../results".into()))
    );
    for name in [
        "defaults",
        "hydra",
        "runner.task_type",
        "runner.logger.project_name",
        "env.group_name",
        "env.eval.is_eval",
        "rollout.generation_backend",
        "rollout.model.openpi",
        "env.eval.video_cfg.info_on_video",
    ] {
        assert!(
            config.unused.iter().any(|unused| unused == name),
            "{name} in {:?}",
            config.unused
        );
    }
    assert!(
        !Config {
            unused: Vec::new(),
            ..read(&[text]).unwrap()
        }
        .has_jobs(),
        "it names no environment of ours"
    );
}

#[test]
fn an_empty_file_says_nothing() {
    assert_eq!(read(&["# nothing\n\n"]).unwrap().jobs(None), None);
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
            keys::EVAL.iter().chain(keys::ROLLOUT).chain(keys::CLUSTER).chain(&sections).copied().collect::<Vec<_>>();
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
        let _ = read(&[&text]);
        // JSON is valid YAML.
        let texts: Vec<String> = trees.iter().map(ToString::to_string).collect();
        if let Ok(config) = read(&texts.iter().map(String::as_str).collect::<Vec<_>>()) {
            let _ = config.jobs(None).map(|jobs| parse(&jobs));
            let _ = config.jobs(Some(json!({"jobs": trees}))).map(|jobs| parse(&jobs));
        }
    }
}
