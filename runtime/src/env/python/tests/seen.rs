//! Tests of observations and actions through mappings.

use std::fs;

use super::*;

#[test]
fn an_environment_without_a_mapping_shows_what_it_has() {
    let mut env = start(json!({"clip_actions": true}), 2);
    let spec = env.spec().clone();
    let cameras = spec
        .cameras
        .iter()
        .map(|c| (c.name.as_str(), c.height, c.width));
    assert!(cameras.eq([("pixels.top", 24, 24), ("pixels.low", 8, 12)]));
    let states = [("position", 3), ("quaternion", 4)];
    assert_eq!(
        spec.state,
        states.map(|(name, length)| (name.to_owned(), length))
    );
    assert_eq!(spec.action.names, ["action_0", "action_1"]);
    assert_eq!(
        (&spec.action.low, &spec.action.high),
        (&vec![-1.0, -2.0], &vec![1.0, 2.0])
    );
    assert_eq!((spec.control_hz, spec.max_episode_steps), (10, 50));
    let first = reset(&mut env, 1, 7).unwrap();
    assert_eq!(&*first.language, "reach 7");
    let next = step(&mut env, 1, [0.5, 9.0]).unwrap().observation;
    let moved = [0, 1, 2].map(|at| next.state["position"][at] - first.state["position"][at]);
    let off = (0..3).map(|at| (moved[at] - [0.5, 2.0, 0.01][at]).abs());
    assert!(off.into_iter().all(|off| off < 1e-6), "{moved:?}");
    let top = &next.video["pixels.top"].rgb;
    assert_eq!(
        (top.len(), &top[..6]),
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
    let state = |name: &str| seen.state[name].as_slice();
    let (both, xy) = (state("both"), state("xy"));
    let is_scaled = (0..2).all(|at| (xy[at] - (both[at] * 2.0 + 1.0)).abs() < 1e-6);
    assert!(is_scaled, "{xy:?} {both:?}");
    assert_eq!(
        (state("z"), &both[3..]),
        (&both[2..3], &[0.0, 0.0, 0.0, 1.0][..])
    );
    assert_eq!((state("rpy"), &*seen.language), (&[0.0; 3][..], "False"));
    let corner = |name: &str, row: usize, column: usize| {
        seen.video[name].rgb[(row * 24 + column) * 3..][..3].to_vec()
    };
    assert_eq!(corner("up", 23, 0), [1, 2, 3]);
    assert_eq!(corner("turned", 23, 23), [1, 2, 3]);
    let view = &seen.video["view"];
    assert_eq!((view.height, view.rgb[0]), (16, 100));
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
    let drawn = || fs::read_to_string(&looks).unwrap();
    let seen = env.reset(&[(EnvIndex(0), 1)], Render::No).remove(0);
    assert!(seen.unwrap().video.is_empty());
    assert_eq!(drawn(), "True\n");
    let stepped = env
        .step(&[(EnvIndex(0), vec![0.0; 2])], Render::No)
        .remove(0);
    assert!(stepped.unwrap().observation.video.is_empty());
    let seen = step(&mut env, 0, [0.0; 2]).unwrap().observation;
    assert_eq!(seen.video["view"].rgb[0], 102);
    // The attribute `rendering` of the environment is set before it steps.
    assert_eq!(drawn(), "True\nTrue\n");
}

#[test]
fn images_that_nobody_has_looked_at_yet_stay_those_of_their_step() {
    let mapping = json!({"video": {"view": {"render": true}}, "state": {"x": "position"}});
    for processes in [1, 2] {
        let mut env = start(
            json!({"mapping": mapping, "envs_per_process": processes}),
            2,
        );
        let all = [EnvIndex(0), EnvIndex(1)];
        let mut seen = env.reset(&all.map(|env| (env, 1)), Render::Yes);
        for _ in 1..6 {
            let steps = env.step(&all.map(|env| (env, vec![0.0; 2])), Render::Yes);
            seen.extend(steps.into_iter().map(|step| Ok(step?.observation)));
        }
        drop(env);
        let shown = seen
            .into_iter()
            .map(|seen| seen.unwrap().video["view"].rgb[0]);
        let wanted: Vec<u8> = (100..106).flat_map(|step| [step, step]).collect();
        assert_eq!(shown.collect::<Vec<_>>(), wanted);
    }
}

#[test]
fn an_action_is_transformed_in_its_order() {
    let transforms = json!({"a": {"scale": 2, "offset": -1, "invert": true, "binarize": true}, "b": {"scale": 4, "clip": [-0.5, 1]}});
    let mapping = json!({"action": {"names": ["a", "b"], "transforms": transforms}});
    let mut env = start(json!({"mapping": mapping}), 1);
    let spec = env.spec().action.clone();
    assert_eq!(spec.names, ["a", "b"]);
    assert_eq!((spec.low, spec.high), (vec![0.0, -0.5], vec![1.0, 0.5]));
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
    let solved = (true, true, false);
    assert_eq!(
        ends(json!({})),
        [running, running, running, running, solved]
    );
    for (args, step, wanted) in [
        (json!({"success": "terminated"}), 4, solved),
        (json!({"success": "reward>=100"}), 4, (false, true, false)),
        (json!({"success": "reward>=-100"}), 0, (true, false, false)),
        (
            json!({"success": "is_success", "max_episode_steps": 2}),
            1,
            (false, false, true),
        ),
    ] {
        assert_eq!(ends(args.clone())[step], wanted, "{args}");
    }
}

#[test]
fn an_id_of_gymnasium_is_made_with_its_arguments() {
    let args = json!({"environment": "gym:CartPole-v1", "env_kwargs": {"sutton_barto_reward": true},
                      "max_episode_steps": null, "success": "reward>=1"});
    let mut env = start(args, 1);
    let spec = env.spec().clone();
    assert_eq!((spec.control_hz, spec.max_episode_steps), (50, 500));
    assert_eq!((spec.cameras.len(), &spec.action.high), (0, &vec![1.0]));
    assert_eq!(spec.state, [("observation".to_owned(), 4)]);
    reset(&mut env, 0, 1).unwrap();
    let stepped = env.step(&[(EnvIndex(0), vec![1.0])], Render::No).remove(0);
    assert_eq!(stepped.unwrap().reward, 0.0);
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
    let wanted = format!("9 {{'episode': {}}}", (1u64 << 40) + 9);
    assert!(told.lines().nth(1).unwrap().starts_with(&wanted), "{told}");
}

#[test]
fn the_jobs_words_win() {
    let mut job = job(json!({}));
    job.language_instruction = Some("do it".to_owned());
    let mut env = Lockstep::new(make(&job, config(EnvPlacement::new(1))).unwrap());
    assert_eq!(env.spec().language, "do it");
    assert_eq!(&*reset(&mut env, 0, 1).unwrap().language, "do it");
}
