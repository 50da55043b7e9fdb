//! Tests of observations and actions through mappings.

use std::fs;

use super::*;

#[test]
fn an_environment_without_a_mapping_shows_what_it_has() {
    let mut env = start(json!({"clip_actions": true}), 2);
    let spec = env.spec().clone();
    let cameras: Vec<_> = spec
        .cameras
        .iter()
        .map(|c| (c.name.as_str(), c.height, c.width))
        .collect();
    assert_eq!(cameras, [("pixels.top", 24, 24), ("pixels.low", 8, 12)]);
    assert_eq!(
        spec.state,
        [("position".to_owned(), 3), ("quaternion".to_owned(), 4)]
    );
    assert_eq!(spec.action.names, ["action_0", "action_1"]);
    assert_eq!(
        (spec.action.low, spec.action.high),
        (vec![-1.0, -2.0], vec![1.0, 2.0])
    );
    assert_eq!((spec.control_hz, spec.max_episode_steps), (10, 50));
    let first = reset(&mut env, 1, 7).unwrap();
    assert_eq!(
        (&*first.language, first.state["position"].len()),
        ("reach 7", 3)
    );
    let next = step(&mut env, 1, [0.5, 9.0]).unwrap().observation;
    let moved = (0..3).map(|at| next.state["position"][at] - first.state["position"][at]);
    let wanted = [0.5, 2.0, 0.01];
    assert!(
        moved
            .zip(wanted)
            .all(|(found, wanted)| (found - wanted).abs() < 1e-6)
    );
    let red = &next.video["pixels.top"].rgb;
    assert_eq!(
        (red.len(), &red[..6]),
        (24 * 24 * 3, &[1, 2, 3, 1, 1, 1][..])
    );
}

#[test]
fn a_mapping_gives_names_turns_pictures_and_takes_vectors_apart() {
    let mapping = json!({
        "video": {"up": {"from": "pixels.top", "flip": "vertical"}, "turned": {"from": "pixels.top", "flip": ["horizontal", "vertical"]},
                  "view": {"render": true}},
        "state": {"xy": {"from": "position", "index": "0:2", "scale": 2, "offset": 1}, "z": {"from": "position", "index": 2},
                  "both": {"from": ["position", "quaternion"]}, "rpy": {"from": "quaternion", "convert": "quat_to_rpy"}},
        "language": {"info": "is_success"},
    });
    let mut env = start(json!({"mapping": mapping}), 1);
    let sizes: Vec<_> = env.spec().state.iter().map(|(_, length)| *length).collect();
    assert_eq!(sizes, [2, 1, 7, 3]);
    let seen = reset(&mut env, 0, 3).unwrap();
    let both = &seen.state["both"];
    let xy = seen.state["xy"]
        .iter()
        .zip(both)
        .all(|(found, plain)| (found - (plain * 2.0 + 1.0)).abs() < 1e-6);
    assert!(xy, "{:?}", seen.state["xy"]);
    assert_eq!(
        (&seen.state["z"][..], &both[3..]),
        (&both[2..3], &[0.0, 0.0, 0.0, 1.0][..])
    );
    assert_eq!(
        (seen.state["rpy"].as_slice(), &*seen.language),
        (&[0.0; 3][..], "False")
    );
    let corner = |name: &str, row: usize, column: usize| {
        seen.video[name].rgb[(row * 24 + column) * 3..][..3].to_vec()
    };
    assert_eq!(
        (corner("up", 23, 0), corner("turned", 23, 23)),
        (vec![1, 2, 3], vec![1, 2, 3])
    );
    assert_eq!(
        (seen.video["view"].height, seen.video["view"].rgb[0]),
        (16, 100)
    );
}

#[test]
fn a_quaternion_becomes_a_rotation_by_its_order() {
    let turn = |order: &str| {
        let entry = json!({"from": "turn", "convert": "quat_to_axis_angle", "order": order});
        let args = json!({"environment": fixture("Turned"), "mapping": {"state": {"a": entry}}, "success": "terminated"});
        let mut env = start(args, 1);
        reset(&mut env, 0, 0).unwrap().state["a"].clone()
    };
    // Half a turn about x: [1, 0, 0, 0] in the order x, y, z, w; no rotation in the order w, x, y,
    // z.
    assert_eq!(turn("xyzw"), [std::f32::consts::PI, 0.0, 0.0]);
    assert_eq!(turn("wxyz"), [0.0; 3]);
}

#[test]
fn pictures_are_made_when_somebody_looks() {
    let folder = tempfile::tempdir().unwrap();
    let looks = folder.path().join("looks");
    let mapping = json!({"video": {"view": {"render": true}}, "state": {"x": "position"}});
    let mut env = start(
        json!({"mapping": mapping, "env_kwargs": {"looks": looks}}),
        1,
    );
    let drawn = || {
        fs::read_to_string(&looks)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let seen = env
        .reset(&[(EnvIndex(0), 1)], Render::No)
        .remove(0)
        .unwrap();
    assert!(seen.video.is_empty());
    assert_eq!(drawn(), ["True"]);
    env.step(&[(EnvIndex(0), vec![0.0; 2])], Render::No)
        .remove(0)
        .unwrap();
    assert_eq!(
        step(&mut env, 0, [0.0; 2]).unwrap().observation.video["view"].rgb[0],
        102
    );
    // The attribute `rendering` of the environment is set before it steps.
    assert_eq!(drawn(), ["True", "True"]);
}

#[test]
fn frames_that_are_held_stay_as_they_were() {
    let mut env = start(json!({"env_kwargs": {"length": 100}}), 1);
    reset(&mut env, 0, 1).unwrap();
    let held: Vec<_> = (0..20)
        .map(|_| step(&mut env, 0, [0.0; 2]).unwrap().observation)
        .collect();
    for (number, seen) in held.iter().enumerate() {
        assert_eq!(seen.video["pixels.top"].rgb[3..6], [number as u8 + 1; 3]);
        assert_eq!(seen.video["pixels.top"].rgb.len(), 24 * 24 * 3);
    }
}

#[test]
fn an_action_is_transformed_in_its_order() {
    let transforms = json!({"a": {"scale": 2, "offset": -1, "invert": true, "binarize": true}, "b": {"scale": 4, "clip": [-0.5, 1]}});
    let mapping = json!({"action": {"names": ["a", "b"], "transforms": transforms}});
    let mut env = start(json!({"mapping": mapping}), 1);
    let spec = env.spec().action.clone();
    assert_eq!(
        (spec.names, spec.low, spec.high),
        (
            vec!["a".to_owned(), "b".to_owned()],
            vec![0.0, -0.5],
            vec![1.0, 0.5]
        )
    );
    let mut taken = |action: [f32; 2]| {
        let before = reset(&mut env, 0, 1).unwrap().state["position"].clone();
        let after = step(&mut env, 0, action).unwrap().observation.state["position"].clone();
        [0, 1].map(|at| ((after[at] - before[at]) * 100.0).round() / 100.0)
    };
    // "Open" is 1 for the policy and -1 for the environment.
    assert_eq!(taken([1.0, 0.25]), [-1.0, 1.0]);
    assert_eq!(taken([0.2, -0.5]), [1.0, -0.5]);
}

#[test]
fn a_choice_is_one_rounded_number() {
    let args = json!({"environment": fixture("Bare"), "success": "reward>=1"});
    let mut env = start(args, 1);
    let spec = env.spec().action.clone();
    assert_eq!((spec.low, spec.high), (vec![2.0], vec![6.0]));
    assert_eq!(
        reset(&mut env, 0, 0).unwrap().state["observation"],
        [0.0, 0.0]
    );
    let taken = env
        .step(&[(EnvIndex(0), vec![4.4])], Render::No)
        .remove(0)
        .unwrap();
    assert_eq!(
        (&taken.observation.state["observation"][..], taken.success),
        (&[4.0, 1.0][..], true)
    );
}

#[test]
fn success_is_what_the_job_says() {
    let ends = |args: Value| {
        let mut env = start(args, 1);
        reset(&mut env, 0, 2).unwrap();
        (0..5)
            .map(|_| step(&mut env, 0, [1.0, 0.0]).unwrap())
            .map(|step| (step.success, step.terminated, step.truncated))
            .collect::<Vec<_>>()
    };
    let running = (false, false, false);
    assert_eq!(
        ends(json!({})),
        [running, running, running, running, (true, true, false)]
    );
    assert_eq!(
        ends(json!({"success": "terminated"}))[4],
        (true, true, false)
    );
    assert_eq!(
        ends(json!({"success": "reward>=100"}))[4],
        (false, true, false)
    );
    assert_eq!(
        ends(json!({"success": "reward>=-100"}))[0],
        (true, false, false)
    );
    assert_eq!(
        ends(json!({"success": "is_success", "max_episode_steps": 2}))[1],
        (false, false, true)
    );
}

#[test]
fn what_does_not_fit_is_refused_with_both_sides() {
    let mapping = |mapping: Value| refusal(json!({"mapping": mapping}));
    assert_eq!(
        mapping(
            json!({"video": {"front": "pixels.tip"}, "state": {"x": {"from": ["position", "quaternion"]}}})
        ),
        "mapping: video.front asks for `pixels.tip`, which does not exist (did you mean `pixels.top`?); \
         the mapping asks for video.front <- `pixels.tip`, state.x <- `position` + `quaternion`; \
         the environment shows `pixels.top` uint8 [24, 24, 3], `pixels.low` uint8 [8, 12, 3], `position` float64 [3], \
         `quaternion` float64 [4], `goal` text []"
    );
    assert!(
        mapping(json!({"video": {"a": "position"}}))
            .contains("video.a needs a picture, uint8 [height, width, 3], found float64 [3]; ")
    );
    assert!(
        mapping(json!({"state": {"a": "goal"}})).contains("state.a needs numbers, found text []; ")
    );
    assert!(
        mapping(json!({"state": {"a": {"from": "position", "index": 3}}}))
            .contains("state.a: index 3: ")
    );
    let quaternion = json!({"from": "position", "convert": "quat_to_rpy"});
    assert!(
        mapping(json!({"state": {"a": quaternion}}))
            .contains("quat_to_rpy needs a quaternion of 4 numbers, found 3")
    );
    let names = mapping(json!({"action": {"names": ["x"]}}));
    assert_eq!(
        names,
        "mapping: action.names has 1 names (x), the action space has 2 numbers (action_0, action_1)"
    );
    let transforms = mapping(json!({"action": {"transforms": {"x": {}}}}));
    assert_eq!(
        transforms,
        "mapping: action.transforms names x, the action has action_0, action_1"
    );
    let render =
        json!({"mapping": {"video": {"a": {"render": true}}}, "env_kwargs": {"render_mode": null}});
    assert!(
        refusal(render)
            .contains("video.a needs render(), but the environment's render_mode is None")
    );
}

#[test]
fn what_an_environment_does_not_say_has_to_be_said() {
    let reason = refusal(json!({"max_episode_steps": null}));
    assert_eq!(
        reason,
        "the environment has no limit of steps: set max_episode_steps"
    );
    let reason = refusal(json!({"environment": fixture("Bare")}));
    let wanted = "`arena_env_args.success` is not given, and info has neither `is_success` nor `success` after a step (it has other)";
    assert!(reason.starts_with(wanted), "{reason}");
    let reason = refusal(json!({"environment": fixture("Tony")}));
    assert!(
        reason.contains("toy.py` has no `Tony`; it has Toy, "),
        "{reason}"
    );
    assert!(refusal(json!({"environment": "gym:NoSuch-v0"})).contains("NameNotFound"));
    assert!(
        refusal(json!({"environment": "no_such.module:make"}))
            .contains("No module named 'no_such'")
    );
}

#[test]
fn an_id_of_gymnasium_is_made_with_its_arguments() {
    let args = json!({"environment": "gym:CartPole-v1", "env_kwargs": {"sutton_barto_reward": true},
                      "max_episode_steps": null, "success": "reward>=1"});
    let mut env = start(args, 1);
    let spec = env.spec().clone();
    assert_eq!(
        (spec.control_hz, spec.max_episode_steps, spec.cameras.len()),
        (50, 500, 0)
    );
    assert_eq!(
        (spec.state, spec.action.high),
        (vec![("observation".to_owned(), 4)], vec![1.0])
    );
    reset(&mut env, 0, 1).unwrap();
    assert_eq!(
        env.step(&[(EnvIndex(0), vec![1.0])], Render::No)
            .remove(0)
            .unwrap()
            .reward,
        0.0
    );
}

#[test]
fn the_number_of_the_episode_is_told_if_the_job_wants() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = folder.path().join("seeds");
    let args = json!({"env_kwargs": {"seeds": seeds, "note": "{env}"}, "pass_episode": true});
    let mut env = start(args, 1);
    // A lockstep environment numbers episodes by their seeds; an environment receives 31 bits of
    // the seed.
    reset(&mut env, 0, (1 << 40) + 9).unwrap();
    let told = fs::read_to_string(&seeds).unwrap();
    assert!(
        told.lines()
            .nth(1)
            .unwrap()
            .starts_with(&format!("9 {{'episode': {}}}", (1u64 << 40) + 9)),
        "{told}"
    );
}

#[test]
fn the_jobs_words_win() {
    let mut job = job(json!({}));
    job.language_instruction = Some("do it".to_owned());
    let mut env = Lockstep::new(|answers| make(&job, PythonConfig::new(1), answers)).unwrap();
    assert_eq!(env.spec().language, "do it");
    assert_eq!(&*reset(&mut env, 0, 1).unwrap().language, "do it");
}
