//! The answers of `rrun-rank` to `rrun doctor`.

use std::process::{Command, Output};

use jobs::rank_probe::{DrawnPicture, LoadedLibraries, RankQuestion};
use serde::de::DeserializeOwned;

fn probe(words: &[&str]) -> Output {
    let mut command = Command::new(rig::rrun_rank());
    command.arg("probe").args(words).output().unwrap()
}

/// Returns the answer, in the last line of the output.
#[track_caller]
fn answer<T: DeserializeOwned>(question: RankQuestion) -> Result<T, String> {
    let output = probe(&[question.name()]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let line = stdout.lines().last().expect("an answer");
    let answer: Result<T, String> = serde_json::from_str(line).unwrap();
    assert_eq!(output.status.success(), answer.is_ok(), "{line}");
    answer
}

#[test]
fn the_rank_binary_names_its_libraries() {
    let libraries: LoadedLibraries = answer(RankQuestion::Libraries).unwrap();
    assert!(libraries.rrun.starts_with(env!("CARGO_PKG_VERSION")));
    assert!(libraries.libtorch.unwrap().starts_with("2.1"));
}

#[test]
fn a_picture_is_drawn_and_its_renderer_is_named() {
    let pictures: Vec<DrawnPicture> = answer(RankQuestion::Egl).unwrap();
    assert!(!pictures[0].renderer.is_empty());
}

#[test]
fn an_unknown_question_is_refused() {
    for words in [&["gloo"] as &[_], &[], &["egl", "1", "0", "2"]] {
        let output = probe(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("expected `probe QUESTION`"));
    }
}
