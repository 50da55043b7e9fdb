//! Tests of `rrun top`.

use crate::tools::folder::{Run, job, rrun};

#[test]
fn a_frame_has_the_run_so_far_and_a_run_that_is_not_under_way_has_only_one() {
    let run = Run::new(&[job("a", 4), job("b", 2)]);
    run.rank(0, (0..3).map(|number| run.episode(0, number, 0)));
    for words in [&["top", run.path(), "--once"][..], &["top", run.path()]] {
        rrun(words)
            .succeeds()
            .says("not under way, after")
            .says("3 of 6 episodes")
            .says("2 solved, 1 not solved");
    }
}

#[test]
fn what_is_no_run_is_refused() {
    let run = Run::new(&[job("a", 4)]);
    let missing = format!("{}/nothing", run.path());
    rrun(&["top", &missing])
        .fails_with(1)
        .complains("does not exist");
    rrun(&["top", run.path(), "--interval", "0"])
        .fails_with(2)
        .complains("--interval");
}
