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
    let told = rrun(&["verify", "--determinism", "4", &folder]);
    assert!(
        told.contains("run again: 4 episodes, by 1 rank with 1 environment\n"),
        "{told}"
    );
    let merged = format!("{folder}_merged");
    rrun(&["merge", &folder, "--output", &merged]);
    rrun(&["verify", &merged]);
    let told = rrun(&["compare", &folder, &merged]);
    assert!(told.contains("| all   | 9 "), "{told}");
}

#[test]
fn environments_are_measured_by_two_short_runs() {
    let eval = Eval::new(&[job("reach", 6, 4), job("push", 3, 2)]);
    let jobs = eval.jobs_file().to_string_lossy().into_owned();
    let file = format!("{jobs}.memory.json");
    let told = rrun(&[
        "fit",
        "--jobs",
        &jobs,
        "--probe",
        "--no-video",
        "--probe-envs",
        "1,3",
        "--measured",
        &file,
    ]);
    assert!(
        told.contains("| reach ")
            && told.contains("| push ")
            && told.contains("this machine: about "),
        "{told}"
    );
    let measured = fit::memory::Measured::read(file.as_ref()).expect("it was written");
    let bases: Vec<_> = measured
        .environments
        .iter()
        .map(|entry| entry.host.base.0 >> 20)
        .collect();
    assert_eq!(measured.environments[0].num_envs, [1, 3]);
    assert!(
        bases.iter().all(|mib| (5..4000).contains(mib)),
        "MiB of a rank: {bases:?}"
    );
    let again = rrun(&[
        "fit",
        "--jobs",
        &jobs,
        "--measured",
        &file,
        "--gpu-memory",
        "24GiB",
    ]);
    assert!(again.contains("this machine: about "), "{again}");
}
