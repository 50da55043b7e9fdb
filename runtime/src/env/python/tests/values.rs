//! Tests of values that environments return and of action conversions: valid ones pass, invalid
//! ones end their episode with a reason.

use super::*;

fn faulty(result: Result<impl std::fmt::Debug, EnvError>) -> String {
    match result.unwrap_err() {
        EnvError::Episode { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

/// Returns the first step of an episode in an environment that returns these values, and checks
/// that another episode can start.
fn first_step(success: &str, reward: &str) -> Result<Step, EnvError> {
    let kwargs = json!({"success": success, "reward": reward});
    let mut env = start(
        json!({"environment": fixture("Saying"), "env_kwargs": kwargs}),
        1,
    );
    reset(&mut env, 0, 5).unwrap();
    let result = env.step(&[(EnvIndex(0), vec![2.0])], Render::No).remove(0);
    reset(&mut env, 0, 6).unwrap();
    result
}

#[test]
fn a_success_is_a_truth_value_or_an_error_of_its_episode() {
    for value in ["True", "numpy", "1", "1.0", "[1]", "[[true]]"] {
        assert!(first_step(value, "1.0").unwrap().success, "{value}");
    }
    let wrong = [
        ("nan", "float nan"),
        ("[]", "ndarray float64 [0]"),
        ("'False'", "str 'False'"),
        ("None", "NoneType None"),
        ("2", "int 2"),
        ("0.5", "float 0.5"),
        ("[true, true]", "ndarray bool [2]"),
        ("masked", "MaskedConstant masked"),
        ("[masked]", "MaskedArray bool [1]"),
    ];
    for (value, shown) in wrong {
        let wanted = format!(
            "the simulator gave info `is_success` as {shown}, expected a bool (or 0 or 1); \
             at step 1 of episode 5, seed 5; rank 0, job `toy`"
        );
        assert_eq!(faulty(first_step(value, "1.0")), wanted);
    }
}

#[test]
fn a_reward_is_one_number_that_float32_holds_or_an_error_of_its_episode() {
    for value in ["1", "True", "[1]", "[[true]]"] {
        assert_eq!(first_step("True", value).unwrap().reward, 1.0, "{value}");
    }
    let wrong = [
        ("None", "the reward as NoneType None, expected a number"),
        ("'False'", "the reward as str 'False', expected a number"),
        (
            "[true, true]",
            "the reward as ndarray bool [2], expected a number",
        ),
        (
            "masked",
            "the reward as MaskedConstant masked, expected a number",
        ),
        (
            "[masked]",
            "the reward as MaskedArray bool [1], expected a number",
        ),
        (
            "1e39",
            "the reward 1e+39, expected a magnitude of at most 3.4e+38 (float32)",
        ),
        ("nan", "the reward NaN, expected a finite number"),
        ("-inf", "the reward -inf, expected a finite number"),
    ];
    for (value, reason) in wrong {
        let found = faulty(first_step("True", value));
        assert!(
            found.starts_with(&format!(
                "the simulator gave {reason}; at step 1 of episode 5, seed 5; "
            )),
            "{found}"
        );
    }
}

#[test]
fn numbers_of_another_type_are_taken_and_what_is_no_number_is_not() {
    let mut env = start(json!({"env_kwargs": {"fault": "float32", "at": 2}}), 1);
    reset(&mut env, 0, 1).unwrap();
    step(&mut env, 0, [0.0, 0.0]).unwrap();
    step(&mut env, 0, [0.0, 0.0]).unwrap();
    let wrong = [
        (
            "text",
            "state position as text [], at first it was float64 [3]",
        ),
        (
            "none",
            "state position as NoneType [], at first it was float64 [3]",
        ),
        ("masked", "masked numbers in `position`"),
    ];
    for (fault, expected) in wrong {
        let mut env = start(json!({"env_kwargs": {"fault": fault, "at": 2}}), 1);
        reset(&mut env, 0, 1).unwrap();
        step(&mut env, 0, [0.0, 0.0]).unwrap();
        let reason = faulty(step(&mut env, 0, [0.0, 0.0]));
        let expected = format!("the simulator gave {expected}; at step 2 of episode 1");
        assert!(reason.starts_with(&expected), "{reason}");
    }
}

#[test]
fn what_is_in_a_sequence_is_no_state() {
    let environment = json!({"environment": fixture("Varying")});
    let mut env = start(environment.clone(), 1);
    assert_eq!(env.spec().state, [("x".to_owned(), 1)]);
    let left_out = "`things.0` float32 [2] is left out: it is in a Sequence";
    let notes = env.env().notes();
    assert!(
        notes.iter().any(|note| note.starts_with(left_out)),
        "{notes:?}"
    );
    let mapping = json!({"state": {"thing": "things.0"}});
    let reason = refusal(with(environment, "mapping", mapping));
    let expected = "mapping: state.thing asks for `things.0`, which is in a Sequence: its number of elements changes; ";
    assert!(reason.contains(expected), "{reason}");
}

#[test]
fn a_float_picture_with_nan_ends_its_episode() {
    let mapping = json!({"video": {"float": {"from": "float", "convert": "scale"}}, "state": {}});
    let args = json!({"environment": fixture("Pictures"), "env_kwargs": {"spoilt": true}, "mapping": mapping});
    let mut env = start(args, 1);
    reset(&mut env, 0, 5).unwrap();
    let reason = faulty(step(&mut env, 0, [0.0; 2]));
    let expected = "the simulator gave the picture of camera float with NaN, expected numbers; at step 1 of episode 5";
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn half_a_surrogate_pair_is_told_as_a_question_mark() {
    let kwargs = json!({"fault": "raise a surrogate", "at": 1, "of": 1});
    let mut env = start(json!({"env_kwargs": kwargs}), 1);
    reset(&mut env, 0, 1).unwrap();
    let (_, reason, _) = lost(step(&mut env, 0, [0.0; 2]));
    let expected = "the simulator raised ValueError: half a pair: ? (";
    assert!(reason.starts_with(expected), "{reason}");
    let mapping = json!({"language": {"attr": "words"}});
    let mut env = start(
        json!({"environment": fixture("Halved"), "mapping": mapping}),
        1,
    );
    assert_eq!(env.spec().language, "half a pair: ?");
    assert_eq!(&*reset(&mut env, 0, 1).unwrap().language, "half a pair: ?");
}

#[test]
fn a_start_that_fails_with_seed_0_is_tried_with_the_first_episodes() {
    let kwargs = json!({"fault": "raise", "at": 0, "of": 0});
    let config = PythonConfig {
        first_seed: (5 << 31) + 7,
        ..PythonConfig::new(1)
    };
    let mut env = start_with(json!({"env_kwargs": kwargs}), config).unwrap();
    assert_eq!(&*reset(&mut env, 0, 3).unwrap().language, "reach 3");
    let reason = refusal(json!({"env_kwargs": kwargs}));
    assert!(
        reason.contains("raised ValueError: the gripper is not there"),
        "{reason}"
    );
}

#[test]
fn an_environment_with_a_number_called_num_envs_is_no_vector_env() {
    for args in [
        json!({"environment": fixture("Counting")}),
        json!({"environment": fixture("counted"), "vector": false}),
    ] {
        let mut env = start(with(args, "envs_per_process", json!(2)), 2);
        reset(&mut env, 0, 1).unwrap();
        reset(&mut env, 1, 2).unwrap();
        step(&mut env, 1, [0.0, 0.0]).unwrap();
    }
    let reason = refusal(json!({"environment": fixture("Toy"), "vector": true}));
    assert!(
        reason.contains("without single_action_space, num_envs"),
        "{reason}"
    );
    let both = json!({"environment": fixture("counted"), "envs_per_process": 2});
    let reason = start_with(both, PythonConfig::new(2))
        .err()
        .unwrap()
        .to_string();
    assert!(
        reason.contains(
            "has made one Counting, envs_per_process is 2: `vector: false` makes 2 of them"
        ),
        "{reason}"
    );
    let reason = refusal(json!({"environment": "gym:CartPole-v1", "vector": true}));
    assert!(
        reason.starts_with("`arena_env_args.vector` is true, which is for factories"),
        "{reason}"
    );
}

#[test]
fn the_range_is_that_of_the_environment_whatever_that_of_the_policy_is() {
    let taken = |clip: bool, action: Value, given: [f32; 2]| {
        let args = json!({"clip_actions": clip, "env_kwargs": {"strict": false}, "mapping": {"action": action}});
        let mut env = start(args, 1);
        reset(&mut env, 0, 1).unwrap();
        let step = step(&mut env, 0, given).unwrap();
        (step.processed_action, step.out_of_bounds)
    };
    let wide = json!({"low": [-3, -3], "high": [3, 3]});
    assert_eq!(
        taken(false, wide.clone(), [-2.5, 0.0]),
        (vec![-2.5, 0.0], true)
    );
    assert_eq!(
        taken(true, wide.clone(), [-2.5, 0.0]),
        (vec![-1.0, 0.0], true)
    );
    assert_eq!(taken(true, wide, [1.0, -2.0]), (vec![1.0, -2.0], false));
    let scaled = json!({"names": ["x", "y"], "transforms": {"x": {"scale": 3}}, "low": [-1, -1], "high": [1, 1]});
    assert_eq!(
        taken(false, scaled.clone(), [0.5, 0.0]),
        (vec![1.5, 0.0], true)
    );
    assert_eq!(taken(true, scaled, [0.5, 0.0]), (vec![1.0, 0.0], true));
}

#[test]
fn a_picture_that_a_camera_shows_is_no_state() {
    let video = json!({"depth": {"from": "depth", "convert": ["scale", "gray"]}});
    let env = start(
        json!({"environment": fixture("Pictures"), "mapping": {"video": video}}),
        1,
    );
    assert!(
        env.spec().state.iter().all(|(name, _)| name != "depth"),
        "{:?}",
        env.spec().state
    );
}

fn with(mut args: Value, field: &str, value: Value) -> Value {
    args[field] = value;
    args
}

#[test]
fn pictures_of_other_kinds_are_converted_as_the_mapping_says() {
    let video = json!({
        "float": {"from": "float", "convert": "scale"}, "gray": {"from": "gray", "convert": "gray", "flip": "vertical"},
        "planar": {"from": "gray1", "convert": "gray", "layout": "chw"}, "rgba": {"from": "rgba", "convert": "drop_alpha"},
        "depth": {"from": "depth", "convert": ["scale", "gray"], "range": [0.1, 1.1]},
    });
    let mut env = start(
        json!({"environment": fixture("Pictures"), "mapping": {"video": video, "state": {}}}),
        1,
    );
    let seen = reset(&mut env, 0, 1).unwrap().video;
    let rows = |name: &str| {
        seen[name]
            .rgb
            .chunks(3)
            .map(|pixel| [pixel[0], pixel[1], pixel[2]])
            .collect::<Vec<_>>()
    };
    assert_eq!(rows("float"), [[0; 3], [0; 3], [255; 3], [255; 3]]);
    assert_eq!(rows("gray"), [[200; 3], [200; 3], [0; 3], [0; 3]]);
    assert_eq!(rows("planar"), [[0; 3], [0; 3], [200; 3], [200; 3]]);
    assert_eq!(rows("rgba"), [[0; 3], [0; 3], [200; 3], [200; 3]]);
    assert_eq!(rows("depth"), [[0; 3], [128; 3], [255; 3], [0; 3]]);
}

#[test]
fn a_picture_of_another_kind_is_refused_with_what_would_convert_it() {
    let refusal = |entry: Value| {
        refusal(
            json!({"environment": fixture("Pictures"), "mapping": {"video": {"a": entry}, "state": {}}}),
        )
    };
    let reason = refusal(json!("float"));
    let wanted = "mapping: video.a needs a picture, uint8 [height, width, 3], found float32 [2, 2, 3]; \
                  `convert: [scale]` would do; the mapping asks for video.a <- `float`; the environment shows";
    assert!(reason.starts_with(wanted), "{reason}");
    assert!(
        refusal(json!("depth")).contains("found float64 [2, 2]; `convert: [scale, gray]` would do")
    );
    assert!(
        refusal(json!("rgba")).contains("found uint8 [2, 2, 4]; `convert: [drop_alpha]` would do")
    );
    let reason = refusal(json!({"from": "gray", "convert": "drop_alpha"}));
    assert!(
        reason.contains(
            "found uint8 [2, 2] (after drop_alpha: uint8 [2, 2]); `convert: [gray]` would do"
        ),
        "{reason}"
    );
    let reason = refusal(json!({"from": "depth", "convert": "scale"}));
    assert!(
        reason.contains("(after scale: uint8 [2, 2]); `convert: [scale, gray]` would do"),
        "{reason}"
    );
}

#[test]
fn an_action_beyond_its_range_is_passed_on_unless_the_job_wants_it_clamped() {
    let moved = |clip: bool| {
        let mut env = start(
            json!({"clip_actions": clip, "env_kwargs": {"strict": false}}),
            1,
        );
        let first = reset(&mut env, 0, 7).unwrap();
        let step = step(&mut env, 0, [-2.7, 9.0]).unwrap();
        let moved = |at| step.observation.state["position"][at] - first.state["position"][at];
        let moved = [moved(0), moved(1)];
        assert!(
            moved
                .iter()
                .zip(&step.processed_action)
                .all(|(a, b)| (a - b).abs() < 1e-5),
            "{moved:?}"
        );
        step.processed_action
    };
    assert_eq!(moved(false), [-2.7, 9.0]);
    assert_eq!(moved(true), [-1.0, 2.0]);
    let mut env = start(json!({"env_kwargs": {"strict": false}}), 1);
    reset(&mut env, 0, 1).unwrap();
    let reason = faulty(step(&mut env, 0, [f32::INFINITY, 0.0]));
    assert_eq!(reason, "the action `action_0` is inf");
}

#[test]
fn what_is_recorded_of_an_action_is_what_the_environment_got() {
    let transforms =
        json!({"a": {"scale": 0.1, "offset": 0.3}, "b": {"binarize": true, "invert": true}});
    let mapping = json!({"video": {}, "state": {}, "action": {"names": ["a", "b"], "transforms": transforms}});
    let mut env = start(
        json!({"environment": fixture("Pictures"), "mapping": mapping}),
        1,
    );
    reset(&mut env, 0, 1).unwrap();
    let processed = step(&mut env, 0, [0.5, 0.2]).unwrap().processed_action;
    assert_eq!(processed, [(f64::from(0.5f32) * 0.1 + 0.3) as f32, -1.0]);
    let mut env = start(
        json!({"environment": fixture("Bare"), "success": "reward>=2"}),
        1,
    );
    assert_eq!(
        (
            env.spec().action.low[0],
            env.spec().action.high[0],
            env.spec().action.grid_of(0)
        ),
        (2.0, 6.0, 1.0)
    );
    reset(&mut env, 0, 1).unwrap();
    for (given, taken) in [(3.4, 3.0), (99.0, 6.0), (-1.0, 2.0)] {
        let step = env
            .step(&[(EnvIndex(0), vec![given])], Render::No)
            .remove(0)
            .unwrap();
        assert_eq!(
            (
                step.processed_action,
                step.observation.state["observation"][0]
            ),
            (vec![taken], taken)
        );
    }
}
