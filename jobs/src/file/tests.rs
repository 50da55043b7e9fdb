use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::job::Length;

fn minimal() -> Value {
    json!({"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": 3})
}

fn with(field: &str, value: Value) -> Value {
    let mut job = minimal();
    job[field] = value;
    json!({"jobs": [job]})
}

fn refusal(file: &Value) -> String {
    parse(file).expect_err("must be refused").to_string()
}

#[test]
fn a_required_field_with_a_misspelt_name_is_found() {
    let refusal = |renamed: (&str, &str)| {
        let mut entry = json!({"name": "a", "arena_env_args": {"environment": "reach"},
                               "policy_type": "scripted", "num_episodes": 1});
        let job = entry.as_object_mut().unwrap();
        let value = job.remove(renamed.0).unwrap();
        job.insert(renamed.1.to_owned(), value);
        parse(&json!({"jobs": [entry]})).unwrap_err().to_string()
    };
    for (field, misspelt, place) in [
        ("policy_type", "polcy", "job 0 (a)"),
        ("policy_type", "policytype", "job 0 (a)"),
        ("arena_env_args", "arena_env_arg", "job 0 (a)"),
        ("name", "nmae", "job 0"),
    ] {
        let wanted = format!("{place}: unknown field `{misspelt}`; did you mean `{field}`?");
        assert_eq!(refusal((field, misspelt)), wanted);
    }
    assert_eq!(
        refusal(("policy_type", "xyz")),
        "job 0 (a) field policy_type: it is missing"
    );
}

#[test]
fn a_minimal_job_gets_arenas_defaults() {
    let jobs = parse(&json!({"jobs": [minimal()]})).unwrap();
    let job = &jobs[0];
    assert_eq!(
        (job.num_envs, job.num_rebuilds, job.enable_cameras),
        (1, 1, None)
    );
    assert_eq!(
        (job.length, job.status, job.seed),
        (Length::Episodes(3), Status::Pending, None)
    );
}

#[test]
fn arenas_own_examples_are_read() {
    let file = json!({"jobs": [
        {"name": "gr1_open_microwave_cracker_box",
         "arena_env_args": {"enable_cameras": true, "environment": "gr1_open_microwave", "object": "cracker_box"},
         "num_steps": 10,
         "policy_type": "isaaclab_arena_gr00t.policy.gr00t_closedloop_policy.Gr00tClosedloopPolicy",
         "policy_args": {"policy_device": "cuda:0"}},
        {"name": "light", "arena_env_args": {"environment": "maple", "light_intensity": 500, "hdr": null},
         "num_episodes": 5, "num_rebuilds": 2, "language_instruction": null, "variations": {"light": {"x": [1, 2]}},
         "policy_type": "pi0_remote", "policy_config_dict": {"remote_port": 8000}, "status": "completed"}]});
    let jobs = parse(&file).unwrap();
    assert_eq!(jobs[0].length, Length::Steps(10));
    assert_eq!(jobs[0].policy_config["policy_device"], "cuda:0");
    assert_eq!(jobs[0].env_args.keys().collect::<Vec<_>>(), ["object"]);
    assert_eq!(jobs[1].rebuilds(5), [0..3, 3..5]);
    assert_eq!(
        jobs[1].env_args.keys().collect::<Vec<_>>(),
        ["light_intensity", "hdr"]
    );
    assert_eq!(jobs[1].status, Status::Completed);
}

#[test]
fn a_status_that_only_reports_have_is_refused() {
    for word in ["skipped", "interrupted"] {
        let text = refusal(&with("status", json!(word)));
        assert!(
            text.contains("expected one of pending, running, completed, failed"),
            "{text}"
        );
    }
}

#[test]
fn a_misspelt_field_is_refused_with_the_nearest_name() {
    assert_eq!(
        refusal(&with("num_episode", json!(3))),
        "job 0 (a): unknown field `num_episode`; did you mean `num_episodes`?"
    );
    // `policy_type` and `policy_args` are equally near, and the first counts.
    assert_eq!(
        refusal(&with("polcy", json!("scripted"))),
        "job 0 (a): unknown field `polcy`; did you mean `policy_type`?"
    );
}

#[test]
fn refusals_name_job_and_field() {
    for (field, value, text) in [
        (
            "num_episodes",
            json!(0),
            "job 0 (a) field num_episodes: found 0, expected a whole number above 0",
        ),
        (
            "num_episodes",
            json!(-1),
            "job 0 (a) field num_episodes: found -1, expected a whole number above 0",
        ),
        (
            "num_steps",
            json!(-1),
            "job 0 (a) field num_steps: found -1, expected a whole number above 0",
        ),
        (
            "num_rebuilds",
            json!(-1),
            "job 0 (a) field num_rebuilds: found -1, expected a whole number above 0",
        ),
        (
            "num_episodes",
            json!("3"),
            "job 0 (a) field num_episodes: found \"3\", expected a whole number above 0",
        ),
        (
            "name",
            json!(7),
            "job 0 field name: found 7, expected a string",
        ),
        (
            "name",
            json!("a/b"),
            "job 0 (a/b) field name: `a/b` cannot be a file name: it has a path separator or a control character",
        ),
        (
            "arena_env_args",
            json!({}),
            "job 0 (a) field arena_env_args field environment: it is missing",
        ),
        (
            "arena_env_args",
            json!([1]),
            "job 0 (a) field arena_env_args: found a list of 1, expected an object",
        ),
        (
            "seed",
            json!(-1),
            "job 0 (a) field seed: found -1, expected a whole number of at least 0",
        ),
        (
            "num_rebuilds",
            json!(4),
            "job 0 (a) field num_episodes: 3 is less than num_rebuilds 4; each rebuild needs an episode",
        ),
        (
            "num_steps",
            json!(5),
            "job 0 (a) field num_steps: 5 is given together with num_episodes 3; only one of them \
             can end the job",
        ),
        (
            "status",
            json!("done"),
            "job 0 (a) field status: found \"done\", expected one of pending, running, completed, \
             failed",
        ),
    ] {
        assert_eq!(refusal(&with(field, value)), text);
    }
}

#[test]
fn both_names_of_the_policy_config_at_once_are_refused() {
    let mut job = minimal();
    job["policy_args"] = json!({});
    job["policy_config_dict"] = json!({});
    assert!(refusal(&json!({"jobs": [job]})).contains("old name of `policy_config_dict`"));
}

#[test]
fn names_that_differ_in_case_only_are_duplicates() {
    let mut other = minimal();
    other["name"] = json!("A");
    assert!(
        refusal(&json!({"jobs": [minimal(), other]}))
            .starts_with("job 1 field name: `A` is also the name of job 0")
    );
}

#[test]
fn the_top_level_is_checked() {
    assert_eq!(
        refusal(&json!([])),
        "top level: found a list of 0, expected an object"
    );
    assert_eq!(
        refusal(&json!({})),
        "top level field jobs: found nothing, expected a list of jobs"
    );
    assert_eq!(
        refusal(&json!({"jobs": []})),
        "top level field jobs: the list is empty, expected at least one job"
    );
    assert!(
        refusal(&json!({"jobs": [minimal()], "job": 1}))
            .starts_with("top level: unknown field `job`")
    );
}

#[test]
fn syntax_errors_name_line_and_column() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "{\n  \"jobs\": [,]\n}").unwrap();
    let text = JobFile::read(file.path()).unwrap_err().to_string();
    assert!(text.contains("line 2 column 12"), "{text}");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_json() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!("\u{feff}{}", json!({"jobs": [minimal()]}));
    std::fs::write(file.path(), text).unwrap();
    assert_eq!(JobFile::read(file.path()).unwrap().jobs.len(), 1);
}

#[test]
fn a_pipe_or_a_folder_is_refused_before_it_is_read() {
    for path in ["/dev/zero", "/tmp"] {
        let text = JobFile::read(Path::new(path)).unwrap_err().to_string();
        assert!(text.contains("it is not a regular file"), "{text}");
    }
}

#[test]
fn numbers_that_no_machine_can_run_are_refused() {
    assert!(
        refusal(&with("num_episodes", json!(10_000_000_000_000_u64)))
            .contains("expected a whole number up to 1000000")
    );
    let envs = json!({"environment": "reach", "num_envs": 1_000_000_000});
    assert!(refusal(&with("arena_env_args", envs)).contains("expected a whole number up to 4096"));
}

#[test]
fn the_names_of_the_run_folders_own_files_are_refused() {
    let folder = crate::layout::RunFolder::new(Path::new("out"));
    let files = [
        folder.journals(),
        folder.plan(),
        folder.plan_lock(),
        folder.launches(),
        folder.superseded(),
    ];
    let own = files.into_iter().chain(folder.reports());
    for path in own {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            refusal(&with("name", json!(name))).contains("the run folder has a file or folder"),
            "{name}"
        );
    }
}

#[test]
fn epochs_of_all_environments_make_the_length() {
    let length = |fields: Value| {
        let mut job = minimal();
        job.as_object_mut().unwrap().remove("num_episodes");
        job.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        parse(&json!({"jobs": [job]}))
            .map(|jobs| jobs[0].length)
            .map_err(|refusal| refusal.to_string())
    };
    assert_eq!(
        length(json!({"total_num_envs": 8})),
        Ok(Length::Episodes(8))
    );
    assert_eq!(
        length(json!({"total_num_envs": 8, "rollout_epoch": 2})),
        Ok(Length::Episodes(16))
    );
    assert_eq!(length(json!({"rollout_epoch": 3})), Ok(Length::Episodes(3)));
    assert_eq!(
        length(json!({"total_num_envs": 8, "num_episodes": 3})),
        Ok(Length::Episodes(3))
    );
    let steps = json!({"total_num_envs": 8, "auto_reset": true, "max_steps_per_rollout_epoch": 100, "rollout_epoch": 2});
    assert_eq!(
        length(steps),
        Ok(Length::Steps(200)),
        "steps of each environment, over all epochs"
    );
    assert!(
        length(json!({"total_num_envs": 8, "auto_reset": true}))
            .unwrap_err()
            .contains("environments never end")
    );
    let both = length(json!({"num_episodes": 3, "rollout_epoch": 2})).unwrap_err();
    assert!(both.ends_with(
        "field rollout_epoch: 2 is given together with num_episodes; only one of them can end the \
         job"
    ));
}

#[test]
fn a_shared_job_has_all_its_environments() {
    let jobs = parse(&with("total_num_envs", json!(6))).unwrap();
    assert_eq!(
        (jobs[0].num_envs, jobs[0].sharing.unwrap().total_num_envs),
        (6, 6)
    );
    let mut both = minimal();
    both["total_num_envs"] = json!(6);
    both["arena_env_args"]["num_envs"] = json!(2);
    assert!(
        refusal(&json!({"jobs": [both]}))
            .contains("total_num_envs: 6 is given together with num_envs 2")
    );
}

#[test]
fn an_epoch_ends_with_a_chunk() {
    let mut job = minimal();
    job["max_steps_per_rollout_epoch"] = json!(100);
    job["policy_config_dict"] = json!({"action_chunk_length": 32});
    assert!(
        refusal(&json!({"jobs": [job]}))
            .ends_with("not a multiple of num_action_chunks 32; 96 or 128 are")
    );
}

#[test]
fn settings_of_the_loop_and_of_videos_are_read() {
    let mut job = minimal();
    job["auto_reset"] = json!(true);
    job["ignore_terminations"] = json!(true);
    job["pipeline_stage_num"] = json!(3);
    job["video_cfg"] = json!({"save_video": false, "video_base_dir": "v", "cameras": ["a"], "info_on_video": true});
    let jobs = parse(&json!({"jobs": [job]})).unwrap();
    let (rollout, video) = (&jobs[0].rollout, &jobs[0].video);
    assert!(rollout.auto_reset && rollout.ignore_terminations);
    assert_eq!(
        (rollout.pipeline_stage_num, rollout.rollout_epoch),
        (Some(3), 1)
    );
    assert_eq!(
        (video.save, video.cameras.as_deref()),
        (Some(false), Some(&["a".to_owned()][..]))
    );
    assert!(
        refusal(&with("video_cfg", json!({"save": true}))).contains("did you mean `save_video`?")
    );
}

#[test]
fn several_hundred_jobs_keep_their_order() {
    let jobs: Vec<_> = (0..700)
        .map(|i| {
            let mut job = minimal();
            job["name"] = json!(format!("j{i}"));
            job
        })
        .collect();
    let jobs = parse(&json!({"jobs": jobs})).unwrap();
    assert!(
        jobs.iter()
            .enumerate()
            .all(|(i, job)| job.index == JobIndex(i) && job.name == format!("j{i}"))
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        let key = prop_oneof![
            proptest::sample::select(FIELDS).prop_map(str::to_owned),
            proptest::sample::select(&["grid", "name", "group", "x"][..]).prop_map(str::to_owned),
            "[a-z_]{1,9}"
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_makes_the_parser_panic(value in any_json(), jobs in proptest::collection::vec(any_json(), 0..3)) {
        let _ = parse(&value);
        let _ = parse(&json!({"jobs": jobs}));
    }

    #[test]
    fn no_field_value_makes_the_parser_panic(field in proptest::sample::select(FIELDS), value in any_json()) {
        let _ = parse(&with(field, value));
    }

    #[test]
    fn every_variant_that_is_accepted_is_a_job_with_a_file_name(
        grid in proptest::collection::vec(("\\PC{0,9}", proptest::collection::vec(any_json(), 0..4)), 0..4),
        entries in proptest::collection::vec(any_json(), 0..4),
    ) {
        let grid: Map<String, Value> = grid.into_iter().map(|(name, values)| (name, values.into())).collect();
        let entries: Vec<_> = entries.into_iter().chain([json!({"grid": grid})]).collect();
        for variations in [json!({"grid": grid}), json!(entries)] {
            for job in parse(&with("variations", variations)).unwrap_or_default() {
                prop_assert!(check_name(&job.name).is_ok(), "{}", job.name);
                prop_assert_eq!(job.seed_name(), "a");
            }
        }
    }
}
