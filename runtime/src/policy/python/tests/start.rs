//! Tests of policies that cannot be made: one error says why, with the last lines.

use super::*;

#[test]
fn a_policy_that_is_not_there_is_refused() {
    let text = refusal("Toi", json!({}));
    assert!(
        text.contains("toy.py` has no `Toi`; it has Toy, Remembering,"),
        "{text}"
    );
    let text = refusal("Toy", json!({"policy": "package_of_nobody.policies:Toy"}));
    let end = "import of `package_of_nobody.policies:Toy` raised ModuleNotFoundError: No module \
               named 'package_of_nobody'";
    assert!(text.contains(end), "{text}");
    let text = refusal("Toy", json!({"policy": "/nowhere/mine.py:Toy"}));
    assert!(
        text.starts_with("`/nowhere/mine.py`: there is no such file"),
        "{text}"
    );
    let text = refusal("Toy", json!({"policy": "mine"}));
    assert!(
        text.ends_with("\"mine\", expected `file.py:factory` or `package.module:factory`"),
        "{text}"
    );
}

#[test]
fn a_factory_that_fails_is_named_with_its_line_and_the_last_lines() {
    let text = refusal("raising", json!({}));
    assert!(
        text.contains("`: factory raised OSError: there are no weights ("),
        "{text}"
    );
    assert!(text.contains(", in raising)\n    Traceback"), "{text}");
    let text = refusal("useless", json!({}));
    assert!(
        text.contains("the factory made `object`, which has no `act("),
        "{text}"
    );
    let text = refusal("of_zeros", json!({}));
    assert!(
        text.contains("has action_horizon 0, expected a whole number from 1 to 4096"),
        "{text}"
    );
    let text = refusal("Toy", json!({"policy_kwargs": {"color": 1}}));
    assert!(text.contains("factory raised TypeError: "), "{text}");
}

#[test]
fn a_start_that_takes_too_long_is_ended() {
    let text = refusal("sleeping", json!({"startup_timeout_s": 2}));
    let end = "its worker gave no answer for 2 s during factory, and was killed";
    assert!(text.ends_with(end), "{text}");
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

#[test]
fn an_interpreter_that_is_none_is_refused() {
    let text = refusal("Toy", json!({"python": "/nowhere/venv"}));
    assert_eq!(
        text,
        "`policy_config_dict.python` is `/nowhere/venv`, expected an interpreter or the folder \
         of a venv"
    );
    let text = refusal("Toy", json!({"python": "/bin/false"}));
    assert!(
        text.ends_with("its worker exited with code 1 during the start of the interpreter"),
        "{text}"
    );
}

#[test]
fn a_variable_that_is_none_is_refused() {
    let text = refusal("Toy", json!({"env": {"A=B": "c"}}));
    assert!(text.contains("`policy_config_dict.env.A=B` is"), "{text}");
    assert!(
        text.ends_with("which cannot be an environment variable"),
        "{text}"
    );
}
