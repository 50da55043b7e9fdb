//! Tests of values that environments return and of action conversions: valid ones pass, invalid
//! ones end their episode with a reason.

use std::fs;

use super::*;

fn faulty(result: Result<impl std::fmt::Debug, EnvError>) -> String {
    match result.unwrap_err() {
        EnvError::Episode { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn a_success_is_a_truth_value_and_a_reward_a_number_or_an_error_of_its_episode() {
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    fs::write(&said, "True\n1.0").unwrap();
    let args = json!({"environment": fixture("Saying"), "env_kwargs": {"said": said}});
    let mut env = start(args, 1);
    rig::cases::check("src/env/python/tests/values.txt", |given| {
        let text = match given.split_once(' ').unwrap() {
            ("success", value) => format!("{value}\n1.0"),
            (_, value) => format!("True\n{value}"),
        };
        fs::write(&said, text).unwrap();
        reset(&mut env, 0, 5).unwrap();
        let stepped = env.step(&[(EnvIndex(0), vec![2.0])], Render::No);
        match stepped.into_iter().next().unwrap() {
            Ok(step) => format!("success is {}, the reward {}", step.success, step.reward),
            result => faulty(result),
        }
    });
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
fn pictures_of_other_kinds_are_converted_as_the_mapping_says() {
    let video = json!({
        "float": {"from": "float", "convert": "scale"}, "gray": {"from": "gray", "convert": "gray", "flip": "vertical"},
        "planar": {"from": "gray1", "convert": "gray", "layout": "chw"}, "rgba": {"from": "rgba", "convert": "drop_alpha"},
        "depth": {"from": "depth", "convert": ["scale", "gray"], "range": [0.1, 1.1]},
    });
    let mut env = start(
        json!({"environment": fixture("Pictures"), "mapping": {"video": video}}),
        1,
    );
    assert_eq!(
        env.spec().state,
        [],
        "a picture that a camera shows is no state"
    );
    let seen = reset(&mut env, 0, 1).unwrap().video;
    for (name, levels) in [
        ("float", [0, 0, 255, 255]),
        ("gray", [200, 200, 0, 0]),
        ("planar", [0, 0, 200, 200]),
        ("rgba", [0, 0, 200, 200]),
        ("depth", [0, 128, 255, 0]),
    ] {
        let wanted = levels.map(|level| [level; 3]).concat();
        assert_eq!(seen[name].rgb[..], wanted, "{name}");
    }
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
        json!({"environment": fixture("Bare"), "success": "reward>=1"}),
        1,
    );
    let action = &env.spec().action;
    assert_eq!(
        (action.low[0], action.high[0], action.grid_of(0)),
        (2.0, 6.0, 1.0)
    );
    let first = reset(&mut env, 0, 1).unwrap();
    assert_eq!(first.state["observation"], [0.0, 0.0]);
    for (given, taken) in [(3.4, 3.0), (99.0, 6.0), (-1.0, 2.0)] {
        let stepped = env.step(&[(EnvIndex(0), vec![given])], Render::No);
        let step = stepped.into_iter().next().unwrap().unwrap();
        assert_eq!((step.processed_action, step.success), (vec![taken], true));
        // A choice is a whole number.
        assert_eq!(step.observation.state["observation"], [taken, 1.0]);
    }
}

#[test]
fn what_is_in_a_sequence_is_no_state() {
    let mut env = start(json!({"environment": fixture("Varying")}), 1);
    assert_eq!(env.spec().state, [("x".to_owned(), 1)]);
    let left_out = "`things.0` float32 [2] is left out: it is in a Sequence";
    let notes = &env.env().hello.notes;
    let is_said = notes.iter().any(|note| note.starts_with(left_out));
    assert!(is_said, "{notes:?}");
}

#[test]
fn half_a_surrogate_pair_is_shown_as_a_question_mark() {
    let mapping = json!({"language": {"attr": "words"}});
    let args = json!({"environment": fixture("Halved"), "mapping": mapping});
    let mut env = start(args, 1);
    assert_eq!(env.spec().language, "half a pair: ?");
    assert_eq!(&*reset(&mut env, 0, 1).unwrap().language, "half a pair: ?");
}

#[test]
fn an_environment_with_a_number_called_num_envs_is_no_vector_env() {
    for args in [
        json!({"environment": fixture("Counting"), "envs_per_process": 2}),
        json!({"environment": fixture("counted"), "vector": false, "envs_per_process": 2}),
    ] {
        let mut env = start(args, 2);
        reset(&mut env, 0, 1).unwrap();
        reset(&mut env, 1, 2).unwrap();
        step(&mut env, 1, [0.0, 0.0]).unwrap();
    }
}

#[test]
fn an_action_beyond_the_range_of_the_environment_is_passed_on_unless_the_job_wants_it_clamped() {
    let wide = json!({"low": [-3, -3], "high": [3, 3]});
    let scaled = json!({"names": ["x", "y"], "transforms": {"x": {"scale": 3}}, "low": [-1, -1], "high": [1, 1]});
    let table = [
        (json!({}), [-2.7, 9.0], [-2.7, 9.0], [-1.0, 2.0]),
        (wide, [-2.5, 0.0], [-2.5, 0.0], [-1.0, 0.0]),
        (scaled, [0.5, 0.0], [1.5, 0.0], [1.0, 0.0]),
    ];
    for (mapping, given, passed_on, clamped) in table {
        for (clip, taken) in [(false, passed_on), (true, clamped)] {
            let args = json!({"clip_actions": clip, "env_kwargs": {"strict": false}, "mapping": {"action": mapping}});
            let mut env = start(args, 1);
            let first = reset(&mut env, 0, 7).unwrap().state["position"].clone();
            let beyond = step(&mut env, 0, given).unwrap();
            assert_eq!(
                (beyond.processed_action, beyond.out_of_bounds),
                (taken.to_vec(), true)
            );
            let moved = [0, 1].map(|at| beyond.observation.state["position"][at] - first[at]);
            let is_moved = (0..2).all(|at| (moved[at] - taken[at]).abs() < 1e-5);
            assert!(is_moved, "{moved:?}");
            assert!(!step(&mut env, 0, [0.1, -0.2]).unwrap().out_of_bounds);
        }
    }
}

#[test]
fn an_action_that_is_none_is_the_episodes_error() {
    let mut env = start(json!({}), 1);
    reset(&mut env, 0, 1).unwrap();
    for (action, wanted) in [
        (
            vec![f32::NAN, 0.0],
            "environment 0: the action `action_0` is NaN",
        ),
        (
            vec![f32::INFINITY, 0.0],
            "environment 0: the action `action_0` is inf",
        ),
        (
            vec![0.0],
            "environment 0: the action has 1 numbers, expected 2",
        ),
    ] {
        let stepped = env.step(&[(EnvIndex(0), action)], Render::No).remove(0);
        assert_eq!(stepped.unwrap_err().to_string(), wanted);
    }
}
