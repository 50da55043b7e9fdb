//! Tests with small Experiments of each form that Arena's repository has.

use serde_json::{Value, json};

use super::*;
use crate::job::{Job, Length};
use crate::known;

mod factories;
mod parser;

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

/// Returns an Experiment of one run, with a field in a section of it.
fn with(section: &str, field: &str) -> String {
    let sections = [
        "environment",
        "environment_builder",
        "policy",
        "rollout_limit",
    ];
    let own = |name: &&str| match *name {
        "rollout_limit" if section != *name => "num_episodes: 1".to_owned(),
        "environment" | "policy" => {
            format!("type: push, {}", if section == *name { field } else { "" })
        }
        name => (if section == name { field } else { "" }).to_owned(),
    };
    let sections: Vec<_> = sections
        .iter()
        .map(|name| format!("{name}: {{{}}}", own(name)))
        .collect();
    let run = if section == "run" {
        field
    } else {
        "num_rebuilds: 1"
    };
    format!("runs: {{a: {{{}, {run}}}}}", sections.join(", "))
}

#[test]
fn a_run_has_the_shared_values_that_it_does_not_set_itself() {
    let jobs = jobs(SHARED, &[]);
    let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["pear_in_bowl", "cube"], "in the order of the file");
    let [pear, cube] = &jobs[..] else {
        panic!("two")
    };
    assert_eq!(
        (&*pear.environment, pear.num_envs),
        ("tasks/pear_in_bowl.yaml", 5)
    );
    assert_eq!((pear.length, pear.num_rebuilds), (Length::Episodes(10), 1));
    assert_eq!(pear.enable_cameras, Some(true));
    assert_eq!(pear.env_args["placement_seed"], 7);
    assert_eq!(pear.env_args["hdr"], "hall");
    assert_eq!(pear.variations["light"]["hdr_image"]["enabled"], true);
    assert_eq!((cube.length, cube.num_rebuilds), (Length::Episodes(2), 2));
    assert_eq!((cube.seed, pear.seed), (Some(3), None));
    assert_eq!(cube.language_instruction.as_deref(), Some("Lift the cube."));
    assert_eq!(cube.env_args["hdr"], "garage");
    let of_cube = &cube.variations["light"]["hdr_image"];
    assert_eq!(of_cube, &json!({"enabled": false, "hdr_names": ["office"]}));
}

#[test]
fn policies_of_arena_are_ours_with_their_settings() {
    let job = jobs(SHARED, &[]).remove(0);
    let policy = crate::policies::PolicyType::of(&job.policy_type).unwrap();
    assert_eq!(policy.name(), "pi0_remote");
    assert_eq!(crate::policies::check(policy, &job.policy_config), Ok(()));
    assert!(!job.policy_config.contains_key("type"));
    for (theirs, ours) in [
        ("zero_action", "zero_action"),
        ("gr00t_closedloop", "gr00t"),
        (
            "isaaclab_arena_gr00t.policy.gr00t_remote_closedloop_policy.Gr00tRemoteClosedloopPolicy",
            "gr00t_remote_closedloop",
        ),
        ("replay_action", "replay_action"),
        ("replay", "replay_action"),
        (
            "isaaclab_arena.policy.zero_action_policy.ZeroActionPolicy",
            "zero_action",
        ),
        (
            "isaaclab_arena.policy.elsewhere.RandomActionPolicy",
            "random_action",
        ),
        (
            "isaaclab_arena.policy.replay_action_policy.ReplayActionPolicy",
            "replay_action",
        ),
        (
            "my_package.policy.ZeroActionPolicy",
            "my_package.policy.ZeroActionPolicy",
        ),
    ] {
        let change = format!("runs.a.policy.type={theirs}");
        let job = jobs(&with("run", "num_rebuilds: 1"), &[&change]).remove(0);
        assert_eq!(crate::policies::canonical_policy(&job.policy_type), ours);
    }
}

#[test]
fn the_command_line_changes_all_runs_or_one() {
    let changes = [
        "runs.cube.environment_builder.num_envs=2",
        "shared.policy.remote_port=9000",
        "shared.rollout_limit.num_episodes=4",
        "++runs.pear_in_bowl.variations.light.hdr_image.enabled=false",
        "~shared.environment.hdr",
    ];
    let jobs = jobs(SHARED, &changes);
    let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["pear_in_bowl", "cube"]);
    let [pear, cube] = &jobs[..] else {
        panic!("two")
    };
    assert_eq!((pear.num_envs, cube.num_envs), (5, 2));
    assert!(
        jobs.iter()
            .all(|job| job.policy_config["remote_port"] == 9000)
    );
    assert_eq!(
        (pear.length, cube.length),
        (Length::Episodes(4), Length::Episodes(2))
    );
    assert_eq!(pear.variations["light"]["hdr_image"]["enabled"], false);
    assert!(!pear.env_args.contains_key("hdr") && cube.env_args["hdr"] == "garage");
}

#[test]
fn values_of_the_command_line_are_those_of_hydra() {
    let changes = [
        "shared.rollout_limit={num_episodes:7}",
        "++runs.pear_in_bowl.variations.light={hdr_image:{enabled:true,hdr_names:[a,b]}}",
        "++runs.cube.variations={light.hdr_image.enabled:true}",
        "runs.cube.environment_builder.language_instruction='say \\'hi\\''",
        "runs.pear_in_bowl.environment_builder.language_instruction=yes",
        "shared.environment.note=",
    ];
    let jobs = jobs(SHARED, &changes);
    assert_eq!(jobs[0].length, Length::Episodes(7));
    let light = &jobs[0].variations["light"];
    assert_eq!(
        light["hdr_image"],
        json!({"enabled": true, "hdr_names": ["a", "b"]})
    );
    assert_eq!(jobs[1].variations["light"]["hdr_image"]["enabled"], true);
    assert_eq!(jobs[1].language_instruction.as_deref(), Some("say 'hi'"));
    assert_eq!(jobs[0].language_instruction.as_deref(), Some("yes"));
    assert_eq!(jobs[0].env_args["note"], "");
}

#[test]
fn a_run_can_be_removed() {
    let left = jobs(SHARED, &["~runs.pear_in_bowl"]);
    assert_eq!((left.len(), left[0].name.as_str()), (1, "cube"));
    let none = refusal(SHARED, &["~runs.pear_in_bowl", "~runs.cube"]);
    assert_eq!(
        none,
        "runs.cube: it removes the last run, expected at least one"
    );
    assert!(refusal(SHARED, &["~runs.pear"]).contains("there is no run `pear`"));
}

#[test]
fn a_change_that_leads_nowhere_is_refused() {
    let of = |change| refusal(SHARED, &[change]);
    assert_eq!(
        of("runs.cub.rollout_limit.num_episodes=1"),
        "runs.cub.rollout_limit.num_episodes: there is no run `cub`; did you mean `cube`?"
    );
    assert!(of("policy.type=zero_action").contains("neither `shared.<path>` nor"));
    assert!(of("runs.cube=1").contains("neither `shared.<path>` nor"));
    assert!(of("shared.policy").contains("neither an option nor KEY=VALUE"));
    assert!(of("shared.a=[1").contains("`[1`: `]` is missing at the end"));
    assert!(of("runs.cube.num_rebuild=2").contains("did you mean `num_rebuilds`?"));
    assert!(of("shared.variatons.light=2").contains("did you mean `variations`?"));
}

#[test]
fn older_forms_are_read() {
    let list = "
runs:
- name: 01_baseline
  environment: {type: push}
  policy: {type: zero_action}
  rollout_limit: {num_steps: 50}
- name: second
  environment: {type: push}
  policy: {type: zero_action}
  rollout: {num_steps: 20}
";
    let read = jobs(list, &["runs.second.environment_builder.num_envs=64"]);
    assert_eq!(
        (&*read[0].name, read[0].length),
        ("01_baseline", Length::Steps(50))
    );
    assert_eq!((read[1].num_envs, read[1].length), (64, Length::Steps(20)));
    assert_eq!(
        jobs(&list.replace("runs:", "experiments:"), &[]),
        jobs(list, &[])
    );
    assert!(refusal(&list.replace("second", "01_baseline"), &[]).contains("name of another run"));
}

#[test]
fn references_and_anchors_repeat_values() {
    let text = "
shared:
  pi: {type: pi0_remote, remote_host: '${oc.env:HOME}', remote_port: '${shared.port}'}
  port: 8001
runs:
  a: &a
    environment: {type: push, object: 'can_${num_rebuilds}'}
    policy: '${shared.pi}'
    rollout_limit: {num_episodes: 6}
    num_rebuilds: 3
  b: *a
  c:
    <<: *a
    num_rebuilds: 2
";
    let jobs = jobs(text, &["shared.port=7000"]);
    assert_eq!(jobs[0].policy_config["remote_port"], 7000);
    assert_eq!(jobs[0].policy_config["remote_host"], "/home/me");
    assert_eq!(
        (&jobs[1].policy_type, jobs[1].num_rebuilds),
        (&"pi0_remote".to_owned(), 3)
    );
    assert_eq!(
        (&jobs[2].env_args["object"], jobs[2].num_rebuilds),
        (&json!("can_2"), 2)
    );
    let lost = refusal(&text.replace("${shared.port}", "${shared.prt}"), &[]);
    assert_eq!(lost, "runs.a: `${shared.prt}` cannot be resolved");
}

#[test]
fn one_anchor_may_be_repeated_by_very_many_runs() {
    let again: String = (1..400)
        .map(|run| {
            format!("  r{run}: {{environment: {{type: push}}, policy: *p, rollout_limit: *l}}\n")
        })
        .collect();
    let text = format!(
        "runs:\n  r0: {{environment: {{type: push}}, policy: &p {{type: zero_action}}, \
         rollout_limit: &l {{num_episodes: 2}}}}\n{again}"
    );
    let jobs = jobs(&text, &[]);
    assert_eq!(jobs.len(), 400);
    assert!(jobs.iter().all(|job| job.policy_type == "zero_action"));
}

#[test]
fn settings_without_use_are_named_once_and_misspelt_ones_are_refused() {
    let text = SHARED.replace("placement_seed: 7", "device: cuda:0, fabric_level: 2")
        + "    labels: {task: cube}\n    note: x\n";
    let unused = read(&text, &[]).unwrap().unused;
    assert_eq!(
        unused,
        [
            "environment_builder.device",
            "environment_builder.fabric_level",
            "labels",
            "note"
        ]
    );
    let misspelt = [
        ("run", "num_rebuild: 2", "did you mean `num_rebuilds`?"),
        ("run", "variation: {}", "did you mean `variations`?"),
        (
            "environment_builder",
            "nmu_envs: 2",
            "did you mean `num_envs`?",
        ),
        (
            "environment_builder",
            "languge_instruction: x",
            "did you mean `language_instruction`?",
        ),
        (
            "rollout_limit",
            "num_episode: 2",
            "did you mean `num_episodes`?",
        ),
        (
            "rollout_limit",
            "num_episodes: 2, num_steps: 3",
            "both given",
        ),
        (
            "rollout_limit",
            "num_steps: 0",
            "expected a whole number above 0",
        ),
        (
            "environment",
            "factory: table",
            "expected `file.py:factory`",
        ),
    ];
    for (section, field, reason) in misspelt {
        let refusal = refusal(&with(section, field), &[]);
        assert!(refusal.contains(reason), "{refusal}");
        assert!(refusal.starts_with("runs.a"), "{refusal}");
    }
}

#[test]
fn a_file_that_is_no_experiment_is_refused_with_what_it_lacks() {
    for (text, reason) in [
        ("shared: {}", "for RLinf's YAML, use --config"),
        ("env: {eval: {}}", "for RLinf's YAML, use --config"),
        ("run: {}", "did you mean `runs`?"),
        ("runs: {}", "expected at least one"),
        ("runs: 3", "expected a mapping"),
        ("runs: {a: 3}", "runs.a: found 3, expected an object"),
        (
            "runs: {a: {policy: {type: x}}}",
            "runs.a field environment: it is missing",
        ),
        (
            "runs: {a: {enviroment: {type: x}}}",
            "did you mean `environment`?",
        ),
        (
            "runs: {a: {environment: {type: x}}}",
            "runs.a field policy: it is missing",
        ),
        (
            "runs: {a: {environment: {}, policy: {}}}",
            "runs.a.environment field type",
        ),
        (
            "runs: {a: {name: b}}",
            "runs.a.name: the key in `runs` is the name",
        ),
        ("runs: {a: {}}\nsharde: {}", "did you mean `shared`?"),
        ("- runs", "expected a mapping at the top level"),
        ("runs: {a: {}, a: {}}", "duplicate"),
    ] {
        assert!(
            refusal(text, &[]).contains(reason),
            "{text}: {}",
            refusal(text, &[])
        );
    }
}

#[test]
fn a_run_in_steps_may_be_rebuilt() {
    let text = with("run", "num_rebuilds: 3");
    let changes = [
        "runs.a.rollout_limit.num_steps=50",
        "runs.a.rollout_limit.num_episodes=null",
    ];
    let job = jobs(&text, &changes).remove(0);
    assert_eq!((job.length, job.num_rebuilds), (Length::Steps(50), 3));
}

#[test]
fn variations_that_an_environment_of_ours_does_not_have_are_named() {
    let text = with(
        "run",
        "variations: {light.hdr_image.enabled: true, light_intensity: 9}",
    );
    let read = read(&text, &[]).unwrap();
    assert_eq!(read.unused, ["variations.light"]);
    let variations = &read.jobs["jobs"][0]["variations"];
    assert_eq!(variations, &json!({"light_intensity": 9}));
    let factory = "shared.environment.factory=a.py:make";
    let of_arena = jobs(&text, &[factory]).remove(0);
    assert_eq!(of_arena.variations["light"]["hdr_image"]["enabled"], true);
    let misspelt = jobs(&text.replace("light_intensity", "light_intensty"), &[]);
    let told = known::check(&misspelt).unwrap_err().to_string();
    assert!(told.contains("did you mean `light_intensity`?"), "{told}");
}

#[test]
fn an_environment_of_ours_may_stand_in_an_experiment() {
    let text = with(
        "environment_builder",
        "num_envs: 2, env_spacing: 2.5, solve_relations: true",
    );
    let jobs = jobs(&text, &["runs.a.policy.type=scripted"]);
    assert_eq!(known::check(&jobs), Ok(()));
    let gym = self::jobs(&text, &["runs.a.environment.type=gym:Pusher-v5"]);
    assert!(
        !gym[0].env_args.contains_key("env_kwargs"),
        "gymnasium.make has no such arguments"
    );
}
