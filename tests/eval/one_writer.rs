//! Tests that a run folder has one launch at a time: a second one is refused before it starts a
//! rank.

use jobs::launch;

use crate::eval::command::{Eval, Signal, job, until};
use crate::eval::given::Gate;
use crate::eval::resume::kill_all;
use crate::eval::under_others::{rank, torchrun};

/// Returns an evaluation of two jobs that take longer than any test. Two launches on its folder would each find
/// a job that the other has not begun.
fn eval() -> Eval {
    Eval::new(&[job("reach", 40_000, 2), job("push", 40_000, 2)]).words(&["--export-mode=none"])
}

#[test]
fn a_second_launch_with_more_ranks_is_refused_by_the_name_of_the_first() {
    let eval = eval().nproc(1);
    let first = eval.start();
    eval.wait_for_episodes(1);
    let eval = eval.world_of(2);
    let said = format!("is in use by process {} on ", first.pid());
    let refused = eval
        .run()
        .fails_with(1)
        .stderr_has(&said)
        .stderr_has("wait until it ends, or choose another");
    assert!(
        !refused.stderr.contains("[rank "),
        "no rank was started: {}",
        refused.stderr
    );
    assert!(!eval.folder().journal(1).exists());
    kill_all(first);
}

#[test]
fn ranks_without_our_launcher_take_part_through_rank_0() {
    let eval = eval().nproc(1);
    let first = eval.start();
    eval.wait_for_episodes(1);
    let said = format!("is in use by process {} on ", first.pid());
    let eval = eval.launched_by(&torchrun(2));
    let refused = eval.run().fails_with(1);
    // Rank 0 and the rank that it informs report the same, if torchrun lets them finish.
    assert!(refused.stderr.contains(&said), "{}", refused.stderr);
    assert!(!eval.folder().journal(1).exists());
    let eval = eval.launched_by(&[rank()]);
    eval.run()
        .fails_with(i32::from(jobs::rank_env::FINAL))
        .stderr_has(&said);
    kill_all(first);
    // A launch of torchrun locks the folder against one of `rrun`.
    let eval = eval.launched_by(&torchrun(2));
    let other = eval.start();
    until("the lock", || launch::holder(&eval.folder()).is_some());
    let holder = launch::holder(&eval.folder()).unwrap();
    let ours = vec![rig::rrun().to_owned()];
    let eval = eval.launched_by(&ours);
    eval.run()
        .fails_with(1)
        .stderr_has(&format!("is in use by process {} on ", holder.pid));
    other.signal(Signal::TERM);
    other.wait();
    until("the end of the lock", || {
        launch::holder(&eval.folder()).is_none()
    });
}

#[test]
fn a_launch_whose_folder_is_removed_says_so_once_and_ends() {
    for launcher in [rig::rrun().to_owned(), rank()] {
        // Longer than any test: the run ends because of the lock, or not in time.
        let eval = Eval::new(&[job("reach", 200_000, 2)])
            .words(&["--export-mode=none"])
            .launched_by(&[launcher]);
        let running = eval.start();
        eval.wait_for_episodes(1);
        std::fs::remove_dir_all(eval.folder().launches()).unwrap();
        let ended = running.wait();
        assert_ne!(ended.code, 0);
        let said = ended
            .stderr
            .matches("the lock of this launch is gone from `launch.lock`")
            .count();
        assert!((1..4).contains(&said), "{}", ended.stderr);
    }
}

#[test]
fn a_launch_that_was_killed_leaves_a_lock_that_the_next_takes_over() {
    let gate = Gate::new();
    let eval = Eval::new(&[job("reach", 6, 2), gate.job(2)]);
    let eval = eval.nproc(2).words(&["--export-mode=none"]);
    let running = eval.start();
    gate.reached();
    kill_all(running);
    gate.open();
    let left = || std::fs::read_dir(eval.folder().launches()).unwrap().count();
    assert_eq!(left(), 1, "it had no time to put its lock away");
    eval.run().succeeds();
    assert_eq!(left(), 0);
    let journals = jobs::journal::read_all(
        &eval.folder().journals(),
        &jobs::journal::Accepted::default(),
    )
    .unwrap();
    assert!(
        journals
            .iter()
            .all(|contents| contents.foreign.is_empty() && contents.damaged.is_empty())
    );
}
