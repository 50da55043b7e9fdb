//! Tests of the tools on the output of a real evaluation.

use crate::eval::command::{Eval, job};
use crate::eval::given::rrun;

#[test]
fn a_run_is_all_there_and_comes_out_the_same_elsewhere() {
    let eval = Eval::new(&[job("reach", 6, 4), job("push", 3, 2)])
        .nproc(2)
        .with_video()
        .finished();
    let folder = eval.folder().root().to_string_lossy().into_owned();
    let told = rrun(&["verify", "--rerun", "4", &folder]);
    assert!(
        told.contains("run again: 4 episodes, chosen by ")
            && told.contains("by 1 rank with 1 environment\n"),
        "{told}"
    );
    let merged = format!("{folder}_merged");
    rrun(&["report", &folder, "--output", &merged]);
    rrun(&["verify", &merged]);
    let told = rrun(&["compare", &folder, &merged]);
    assert!(told.contains("| all   | 9 "), "{told}");
}

#[test]
fn memory_is_planned_as_a_run_has_measured_it() {
    let eval = Eval::new(&[job("reach", 2, 2), job("push", 2, 1)]).finished();
    let jobs = eval.jobs_file().to_string_lossy().into_owned();
    let folder = eval.folder().root().to_string_lossy().into_owned();
    let told = rrun(&[
        "fit",
        "--jobs",
        &jobs,
        "--measured",
        &folder,
        "--gpu-memory",
        "24GiB",
    ]);
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("this machine: about "));
    let mib = line.and_then(|line| line.split_once(" MiB")?.0.parse::<f64>().ok());
    assert!(
        mib.is_some_and(|mib| (5.0..1000.0).contains(&mib)),
        "{told}"
    );
}
