//! The answers of `rrun-rank` to `rrun doctor`.

use std::process::{Command, Output};

use jobs::finding::{Finding, Grade};

fn probe(words: &[&str]) -> Output {
    let mut command = Command::new(rig::rrun_rank());
    command.arg("probe").args(words).output().unwrap()
}

/// Returns the answer, in the last line of the output, none of whose findings is a failure.
#[track_caller]
fn answer(words: &[&str]) -> Vec<Finding> {
    let output = probe(words);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let line = stdout.lines().last().expect("an answer");
    let found: Vec<Finding> = serde_json::from_str(line).unwrap();
    assert!(found.iter().all(|one| one.grade < Grade::Failed), "{line}");
    assert!(output.status.success(), "{line}");
    found
}

#[test]
fn the_rank_binary_names_its_libraries() {
    let libraries = answer(&["libraries", env!("CARGO_PKG_VERSION")]);
    let names: Vec<_> = libraries.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["rrun-rank", "libtorch", "MuJoCo"]);
    assert!(libraries[0].found.starts_with(env!("CARGO_PKG_VERSION")));
    assert!(libraries[1].found.starts_with("2.1"));
}

#[test]
fn a_picture_is_drawn_and_its_renderer_is_named() {
    assert!(answer(&["egl"])[0].found.contains(", device `"));
}

#[test]
fn an_unknown_question_is_refused() {
    for words in [&["gloo"] as &[_], &[], &["egl", "1", "0", "2"]] {
        let output = probe(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("expected `probe QUESTION`"));
    }
}
