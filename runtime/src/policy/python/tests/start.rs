//! Tests of policies that cannot be made: one error says why, with the last lines.

use super::*;

#[test]
fn a_policy_that_cannot_be_made_says_why() {
    let of_nobody = json!({"policy": "package_of_nobody.policies:Toy"});
    for (factory, more, reason) in [
        (
            "Toi",
            json!({}),
            "toy.py` has no `Toi`; it has Toy, Remembering,",
        ),
        (
            "Toy",
            of_nobody,
            "import of `package_of_nobody.policies:Toy` raised ModuleNotFoundError: No module named 'package_of_nobody'",
        ),
        (
            "raising",
            json!({}),
            "`: factory raised OSError: there are no weights (",
        ),
        ("raising", json!({}), ", in raising)\n    Traceback"),
        (
            "useless",
            json!({}),
            "the factory made `object`, which has no `act(",
        ),
        (
            "of_zeros",
            json!({}),
            "has action_horizon 0, expected a whole number from 1 to 4096",
        ),
        (
            "Toy",
            json!({"policy_kwargs": {"color": 1}}),
            "factory raised TypeError: ",
        ),
        (
            "Toy",
            json!({"python": "/bin/false"}),
            "its worker exited with code 1 during start of the interpreter",
        ),
        (
            "Unspecified",
            json!({"policy_kwargs": {"size": 6}}),
            "`act` gave [1, 5, 6] for one row, expected [1,",
        ),
        (
            "LookingBack",
            json!({"policy_kwargs": {"looks_back": 1000}}),
            "looks_back 1000, expected a whole number from 0 to 255",
        ),
    ] {
        let text = refusal(factory, more);
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn a_start_that_takes_too_long_is_ended() {
    let text = refusal("sleeping", json!({"startup_timeout_s": 1}));
    // A busy machine may be slow to come to the factory.
    assert!(
        text.contains("its worker gave no answer for 1 s during "),
        "{text}"
    );
}

#[test]
fn an_interpreter_without_numpy_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("numpy.py"), "raise ImportError('none')").unwrap();
    let text = refusal("Toy", json!({"env": {"PYTHONPATH": folder.path()}}));
    assert!(
        text.contains("import numpy raised ImportError: none"),
        "{text}"
    );
}
