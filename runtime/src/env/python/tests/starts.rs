//! Tests of starts that fail: they say why, with both sides.

use super::*;

#[test]
fn what_does_not_fit_is_refused_with_both_sides() {
    rig::cases::check("src/env/python/tests/starts.txt", |given| {
        let mut args: Value = serde_json::from_str(given).unwrap();
        let factory = args["environment"].as_str().unwrap_or("Toy");
        args["environment"] = json!(fixture(factory));
        shown(&refusal(args))
    });
}

#[test]
fn what_is_not_there_is_told_in_the_words_of_python_and_gymnasium() {
    assert!(refusal(json!({"environment": "gym:NoSuch-v0"})).contains("NameNotFound"));
    let reason = refusal(json!({"environment": "no_such.module:make"}));
    assert!(reason.contains("No module named 'no_such'"), "{reason}");
    let reason = refusal(json!({"environment": fixture("Tony")}));
    let names = "toy.py` has no `Tony`; it has Toy, ";
    assert!(reason.contains(names), "{reason}");
}

#[test]
fn an_interpreter_that_is_none_is_told() {
    let mut broken = job(json!({}));
    broken.env_args["python"] = json!("/bin/true");
    let made = make(&broken, config(EnvPlacement::new(1)));
    let reason = made.err().unwrap().to_string();
    let wanted = "the simulator exited with code 0; it was at `start of the interpreter`";
    assert!(reason.starts_with(wanted), "{reason}");
}

#[test]
fn a_start_that_always_dies_says_that_it_was_no_episode() {
    let config = PythonConfig {
        first_seed: 9,
        ..config(EnvPlacement::new(1))
    };
    let args = json!({"env_kwargs": {"fault": "exit", "at": 0}});
    let reason = start_with(args, config).err().unwrap().to_string();
    let expected = "the simulator exited with code 3; it was at `reset(seed=9)`, which is tried at \
        the start of a process and is no episode; rank 0, job `toy`";
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn a_start_that_fails_with_seed_0_tries_that_of_the_first_episode() {
    for (method, fault) in [
        ("spawn", "exit"),
        ("forkserver", "exit"),
        ("spawn", "raise"),
    ] {
        let args = json!({"environment": fixture("Faulty"), "start_method": method,
                          "env_kwargs": {"faults": {"0": [fault, 0]}}});
        let config = PythonConfig {
            first_seed: 9,
            ..config(EnvPlacement::new(3))
        };
        let mut env = start_with(args, config).unwrap();
        let all = [0, 1, 2].map(|index| (EnvIndex(index), 5));
        assert!(env.reset(&all, Render::No).iter().all(Result::is_ok));
        let notes = &env.env().hello.notes;
        let begin = "reset(seed=0), which the start tries, ";
        let end = "; it was tried again with the first episode's seed 9";
        let is_said = |note: &String| note.starts_with(begin) && note.ends_with(end);
        assert!(notes.iter().any(is_said), "{notes:?}");
    }
}
