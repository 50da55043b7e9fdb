//! Tests of what an evaluation prints.

use crate::eval::command::{Eval, job};

#[test]
fn quiet_leaves_out_the_opening_table_and_keeps_the_results() {
    let eval = Eval::new(&[job("reach", 1, 1)])
        .nproc(1)
        .launcher_words(&["--quiet"]);
    let done = eval
        .run()
        .succeeds()
        .stdout_has("METRICS SUMMARY")
        .stdout_has("1 of 1 episode")
        .stdout_has("report: ")
        .stdout_has("page:   ");
    assert!(!done.stdout.contains("pending"), "{}", done.stdout);
}

#[test]
fn the_opening_table_of_a_resumed_run_has_what_is_done() {
    let begun = Eval::new(&[job("reach", 1, 1), job("push", 1, 1)]).nproc(1);
    begun.run().succeeds().stdout_has("| reach    | pending | ");
    let eval = begun.jobs(&[job("reach", 1, 1), job("push", 2, 1)]);
    eval.words(&["--accept-changed-jobs"])
        .run()
        .succeeds()
        .stdout_has("| reach    | completed, 1 done | ")
        .stdout_has("| push     | pending, 1 done   | ");
}
