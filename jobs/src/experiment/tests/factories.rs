//! Tests with environments that a factory of the user makes.

use super::*;

#[test]
fn a_factory_gets_the_fields_of_arena_as_arguments() {
    let changes = [
        "shared.environment.factory=arena_env.py:make",
        "shared.environment.python=/isaac/venv",
    ];
    let jobs = jobs(SHARED, &changes);
    let cube = &jobs[1];
    assert_eq!(cube.environment, "arena_env.py:make");
    assert_eq!(cube.env_args["python"], "/isaac/venv");
    let wanted = json!({"type": "table", "enable_cameras": true, "hdr": "garage",
                        "pick_up_object": "cube", "placement_seed": 7});
    assert_eq!(cube.env_args["env_kwargs"], wanted);
    assert_eq!(known::check(&jobs), Ok(()));
    let without = known::check(&self::jobs(SHARED, &[]))
        .unwrap_err()
        .to_string();
    assert!(
        without.contains("unknown name `tasks/pear_in_bowl.yaml`"),
        "{without}"
    );
}

#[test]
fn what_the_builder_of_arena_reads_reaches_the_factory() {
    let builder = "camera_height: 90, camera_width: 160, episode_conditions_path: c.jsonl, \
                   num_rerenders_on_reset: 2, episode_length_s: 9.5, validate_reachability: true, \
                   reachability_validator_kwargs: {samples: 3}, recorder_dataset_filename: a, \
                   recorder_dataset_export_dir_path: b, placement_clearance_m: 0.1, \
                   recorded_build_manifest_path: d, recorded_variation_samples_path: null";
    let read = read(
        &with("environment_builder", builder),
        &["shared.environment.factory=a.py:make"],
    );
    let read = read.unwrap();
    assert_eq!(read.unused, Vec::<String>::new());
    let kwargs = &read.jobs["jobs"][0]["arena_env_args"]["env_kwargs"];
    assert_eq!(kwargs["episode_length_s"], 9.5);
    assert_eq!(
        kwargs["reachability_validator_kwargs"],
        json!({"samples": 3})
    );
    assert_eq!(
        kwargs.as_object().unwrap().len(),
        12,
        "eleven and the type: {kwargs}"
    );
}

#[test]
fn a_factory_makes_all_environments_of_a_process_without_cameras_unless_asked() {
    let of = |changes: &[&str]| {
        let factory = "shared.environment.factory=arena_env.py:make";
        let changes = [
            &[factory, "shared.environment_builder.num_envs=64"],
            changes,
        ]
        .concat();
        jobs(&with("run", "num_rebuilds: 1"), &changes).remove(0)
    };
    let job = of(&[]);
    assert_eq!((job.num_envs, job.enable_cameras), (64, Some(false)));
    assert_eq!(job.env_args["envs_per_process"], 64);
    assert_eq!(job.env_args["env_kwargs"], json!({"type": "push"}));
    let asked = of(&[
        "shared.environment.envs_per_process=1",
        "runs.a.environment.enable_cameras=true",
    ]);
    assert_eq!(asked.env_args["envs_per_process"], 1);
    assert_eq!(asked.enable_cameras, Some(true));
    assert_eq!(asked.env_args["env_kwargs"]["enable_cameras"], true);
}

#[test]
fn recorded_samples_are_refused_by_name_with_the_reason() {
    let with_length = with(
        "run",
        "recorded_variation_samples_paths: [a.jsonl, b.jsonl]",
    );
    let without = with_length.replace("num_episodes: 1", "");
    for text in [with_length, without] {
        let told = refusal(&text, &[]);
        let named = "runs.a.recorded_variation_samples_paths: recorded samples of variations \
                     cannot be repeated here";
        assert!(told.starts_with(named), "{told}");
    }
    let file = with(
        "environment_builder",
        "recorded_variation_samples_path: a.jsonl",
    );
    let told = refusal(&file, &["shared.environment.factory=a.py:make"]);
    let named = "runs.a.environment_builder.recorded_variation_samples_path: recorded samples";
    assert!(told.starts_with(named), "{told}");
    let empty = with("run", "recorded_variation_samples_paths: []");
    assert!(read(&empty, &[]).is_ok());
}
