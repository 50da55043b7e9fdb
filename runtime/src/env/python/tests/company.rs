//! Tests of who is to blame for the end of a process that several copies share, and of the reset that
//! every start tries.

use super::*;

/// Returns who is to blame as each of two copies in a process hears of it: both take a step, and copy
/// 1 misbehaves at its second.
fn blames(factory: &str, fault: &str) -> [Blame; 2] {
    let kwargs = json!({"faults": {"8": [fault, 2]}});
    let args =
        json!({"environment": fixture(factory), "env_kwargs": kwargs, "envs_per_process": 2});
    let mut env = start(args, 2);
    let seeds = [(EnvIndex(0), 7), (EnvIndex(1), 8)];
    let begun = env.reset(&seeds, Render::No);
    assert!(begun.iter().all(Result::is_ok), "{begun:?}");
    let both = [0, 1].map(|index| (EnvIndex(index), vec![0.0; 2]));
    assert!(env.step(&both, Render::No).iter().all(Result::is_ok));
    let found = env.step(&both, Render::No).into_iter().map(blame);
    let found: Vec<_> = found.collect();
    reset(&mut env, 0, 7).unwrap();
    found.try_into().unwrap()
}

#[test]
fn a_copy_whose_call_ends_the_process_is_to_blame_and_its_neighbour_is_not() {
    for fault in ["exit", "kill", "raise"] {
        let expected = [Blame::Neighbour, Blame::Own];
        assert_eq!(blames("Faulty", fault), expected, "{fault}");
    }
}

#[test]
fn nobody_knows_which_copy_of_a_vector_env_is_to_blame() {
    for fault in ["exit", "raise"] {
        assert_eq!(
            blames("faulty_vector", fault),
            [Blame::Unknown; 2],
            "{fault}"
        );
    }
}

#[test]
fn a_copy_with_the_only_episode_is_to_blame_even_in_a_vector_env() {
    let kwargs = json!({"faults": {"8": ["exit", 1]}});
    let args = json!({"environment": fixture("faulty_vector"), "env_kwargs": kwargs, "envs_per_process": 2});
    let mut env = start(args, 2);
    reset(&mut env, 1, 8).unwrap();
    assert_eq!(blame(step(&mut env, 1, [0.0; 2])), Blame::Own);
}

#[test]
fn a_process_that_does_not_start_again_is_nobodys_fault() {
    let folder = tempfile::tempdir().unwrap();
    let kwargs = json!({"fault": "kill", "at": 0, "after": folder.path().join("one")});
    let mut env = start(json!({"env_kwargs": kwargs}), 1);
    assert_eq!(blame(reset(&mut env, 0, 7)), Blame::Own);
    assert_eq!(blame(reset(&mut env, 0, 7)), Blame::Start);
}

#[test]
fn a_start_that_dies_of_seed_0_tries_that_of_the_first_episode() {
    for method in ["spawn", "forkserver"] {
        let kwargs = json!({"faults": {"0": ["exit", 0]}});
        let args =
            json!({"environment": fixture("Faulty"), "env_kwargs": kwargs, "start_method": method});
        let config = PythonConfig {
            first_seed: 9,
            ..PythonConfig::new(3)
        };
        let mut env = start_with(args, config).unwrap();
        let all = [0, 1, 2].map(|index| (EnvIndex(index), 5));
        assert!(env.reset(&all, Render::No).iter().all(Result::is_ok));
        let notes = env.env().notes();
        let expected = "reset(seed=0), which the start tries, exited with code 3; it was tried again with the first episode's seed 9";
        assert!(notes.iter().any(|note| note == expected), "{notes:?}");
    }
}

#[test]
fn a_start_that_always_dies_says_that_it_was_no_episode() {
    let kwargs = json!({"fault": "exit", "at": 0});
    let config = PythonConfig {
        first_seed: 9,
        ..PythonConfig::new(1)
    };
    let reason = start_with(json!({"env_kwargs": kwargs}), config)
        .err()
        .unwrap()
        .to_string();
    let expected = "the simulator exited with code 3; it was at `reset(seed=9)`, which is tried at \
        the start of a process and is no episode; rank 0, job `toy`";
    assert!(reason.starts_with(expected), "{reason}");
}
