//! Tests of who is to blame for the end of a process that several copies share.

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
