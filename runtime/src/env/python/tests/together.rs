//! Tests that copies in a shared process show the same as copies in separate ones.

use super::*;

/// Numbers and pixels of each step, by the seed of the episode.
type Episodes = BTreeMap<u64, Vec<(Vec<f32>, Vec<u8>)>>;

/// Runs episodes of different lengths, and starts another whenever one ends. Returns the
/// observations of each episode by its seed.
fn episodes(args: Value, num_envs: usize) -> Episodes {
    let mut env = start(args, num_envs);
    let mut seen: Episodes = BTreeMap::new();
    let mut next = 0..11;
    let mut running: BTreeMap<usize, u64> = BTreeMap::new();
    loop {
        let idle: Vec<_> = (0..num_envs)
            .filter(|index| !running.contains_key(index))
            .collect();
        let starts: Vec<_> = idle.into_iter().map(EnvIndex).zip(&mut next).collect();
        for ((env, seed), begun) in starts.iter().zip(env.reset(&starts, Render::Yes)) {
            running.insert(env.0, *seed);
            seen.insert(*seed, vec![numbers(&begun.unwrap())]);
        }
        if running.is_empty() {
            return seen;
        }
        let action = |seed: u64, step: usize| vec![(seed as f32 * 0.1).sin(), step as f32 * 0.1];
        let actions = running.iter();
        let actions = actions.map(|(env, seed)| (EnvIndex(*env), action(*seed, seen[seed].len())));
        let actions: Vec<_> = actions.collect();
        for ((EnvIndex(index), _), step) in actions.iter().zip(env.step(&actions, Render::Yes)) {
            let (step, seed) = (step.unwrap(), running[index]);
            let shown = seen.get_mut(&seed).unwrap();
            shown.push(numbers(&step.observation));
            if step.terminated || step.success {
                running.remove(index);
            }
        }
    }
}

/// Runs the episodes with one copy; they end after four steps, or earlier with a success.
fn alone() -> Episodes {
    episodes(
        json!({"env_kwargs": {"length": 4}, "success": "reward>=0.8", "end_on_success": true}),
        1,
    )
}

fn numbers(observation: &Observation) -> (Vec<f32>, Vec<u8>) {
    let pictures = observation
        .video
        .values()
        .flat_map(|frame| frame.rgb.iter().copied());
    (
        observation.state.values().flatten().copied().collect(),
        pictures.collect(),
    )
}

#[test]
fn a_process_of_one_two_or_four_copies_shows_the_same() {
    let alone = alone();
    let lengths: std::collections::BTreeSet<_> = alone.values().map(Vec::len).collect();
    assert!(alone.len() == 11 && lengths.len() > 2, "{lengths:?}");
    let share = |copies: usize| json!({"env_kwargs": {"length": 4}, "success": "reward>=0.8", "end_on_success": true, "envs_per_process": copies});
    assert_eq!(episodes(share(1), 4), alone);
    assert_eq!(episodes(share(2), 4), alone);
    assert_eq!(episodes(share(4), 4), alone);
}

#[test]
fn a_vector_environment_shows_what_its_copies_show_alone() {
    let (alone, kwargs) = (alone(), json!({"length": 4}));
    let vector = |copies| {
        json!({"environment": fixture("vector"), "env_kwargs": kwargs, "envs_per_process": copies, "success": "reward>=0.8", "end_on_success": true,
               "mapping": {"video": {"pixels.low": "pixels.low", "pixels.top": "pixels.top"}}})
    };
    assert_eq!(episodes(vector(4), 4), alone);
    assert_eq!(episodes(vector(2), 4), alone);
    let told = json!({"environment": fixture("vector"), "env_kwargs": kwargs, "envs_per_process": 3, "success": "reward>=0.8", "end_on_success": true, "pass_episode": true});
    assert_eq!(episodes(told, 3), alone);
}

#[test]
fn a_copy_of_a_vector_environment_that_gets_no_action_keeps_no_other_waiting() {
    let args = |length: usize| json!({"environment": fixture("vector"), "envs_per_process": 2, "env_kwargs": {"length": length}});
    // The episode of the copy without an action goes on, or ends and begins again.
    for length in [9, 2] {
        let mut env = start(args(length), 2);
        let both = [0, 1].map(|index| (EnvIndex(index), vec![0.0; 2]));
        env.reset(&both.each_ref().map(|(env, _)| (*env, 1)), Render::No);
        assert!(env.step(&both, Render::No).iter().all(Result::is_ok));
        for seed in 2..4 {
            step(&mut env, 1, [0.5, 0.0]).unwrap();
            reset(&mut env, 1, seed).unwrap();
        }
        let moved = step(&mut env, 1, [0.5, 0.0]).unwrap().observation.state;
        let mut alone = start(json!({}), 1);
        reset(&mut alone, 0, 3).unwrap();
        let expected = step(&mut alone, 0, [0.5, 0.0]).unwrap().observation.state;
        assert_eq!(moved, expected);
    }
}

#[test]
fn a_vector_environment_draws_each_copy_once_for_a_step_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let looks = folder.path().join("looks");
    let mapping = json!({"video": {"view": {"render": true}}});
    let args = json!({"environment": fixture("vector"), "envs_per_process": 3,
                      "env_kwargs": {"looks": looks}, "mapping": mapping});
    let mut env = start(args, 3);
    let drawn = || std::fs::read_to_string(&looks).unwrap().lines().count();
    let before = drawn();
    let seeds = [0, 1, 2].map(|index| (EnvIndex(index), 5));
    let begun = env.reset(&seeds, Render::Yes);
    assert_eq!(drawn() - before, 3);
    let actions = [0, 1, 2].map(|index| (EnvIndex(index), vec![0.0; 2]));
    let steps = env.step(&actions, Render::Yes);
    assert_eq!(drawn() - before, 6);
    let first = &begun[2].as_ref().unwrap().video["view"];
    let second = &steps[2].as_ref().unwrap().observation.video["view"];
    assert_ne!(first, second);
}
