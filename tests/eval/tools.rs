//! The tools on what an evaluation really leaves.

use std::process::Command;

use crate::command::{Eval, binaries, job};

fn rrun(words: &[&str]) -> String {
    let output = Command::new(binaries().join("rrun")).args(words).output().expect("rrun is there");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{words:?}\n{text}");
    text
}

#[test]
fn a_run_is_all_there_and_comes_out_the_same_elsewhere() {
    let eval = Eval::new(&[job("reach", 6, 4), job("push", 3, 2)]).nproc(2).with_video();
    eval.run().succeeds();
    let folder = eval.folder().root().to_string_lossy().into_owned();
    let told = rrun(&["verify", "--determinism", "4", &folder]);
    assert!(told.contains("run again: 4 episodes, by 1 rank with 1 environment\n"), "{told}");
    let merged = eval.folder().root().with_file_name("merged").to_string_lossy().into_owned();
    rrun(&["merge", &folder, "--output", &merged]);
    rrun(&["verify", &merged]);
    let told = rrun(&["compare", &folder, &merged]);
    assert!(told.contains("| all   | 9 "), "{told}");
}
