//! Tests of failures: they cost the rows of one call, and a worker is replaced a limited number of
//! times.

use super::*;

/// Calls a policy in an episode without a fault, then in one with it, then without it again.
/// Returns the reason of the failure, and whether the worker was replaced.
fn fails(factory: &str, fault: &str) -> (String, bool) {
    let mut policy = faulty(factory, fault);
    begin(&mut policy, &[5, FAULT_SEED]);
    let before = pid(&act(&mut policy, &[0])[0]);
    let reason = failure(&act(&mut policy, &[1])[0]).to_owned();
    begin(&mut policy, &[5]);
    let after = pid(&act(&mut policy, &[0])[0]);
    (reason, before != after)
}

#[test]
fn an_exception_costs_the_rows_of_its_call_and_the_worker_goes_on() {
    let (reason, is_replaced) = fails("Toy", "raise");
    assert!(!is_replaced);
    let end = "toy.py:Toy`: `act` raised ValueError: the gripper is not there (";
    assert!(
        reason.starts_with("policy `/") && reason.contains(end),
        "{reason}"
    );
    assert!(reason.ends_with(", in refuse)"), "{reason}");
    let (reason, is_replaced) = fails("Remembering", "raise in reset");
    assert!(
        !is_replaced && reason.contains("`reset` raised KeyError"),
        "{reason}"
    );
    let (reason, is_replaced) = fails("Toy", "write");
    assert!(!is_replaced && reason.contains("is read-only"), "{reason}");
}

#[test]
fn an_exception_over_one_row_costs_the_others_of_the_batch_nothing() {
    let mut policy = faulty("Toy", "raise");
    begin(&mut policy, &[5, FAULT_SEED, 6]);
    let answers = act(&mut policy, &[0, 1, 2]);
    assert!(answers[0].chunk().is_some() && answers[2].chunk().is_some());
    assert!(failure(&answers[1]).contains("the gripper is not there"));
    // One with a `reset` may have remembered a part of the call.
    let mut policy = faulty("Remembering", "raise");
    begin(&mut policy, &[5, FAULT_SEED]);
    let answers = act(&mut policy, &[0, 1]);
    assert!(answers.iter().all(|answer| answer.failure().is_some()));
}

#[test]
fn a_batch_after_the_end_of_a_worker_is_one_call_of_the_next() {
    let mut policy = faulty("Counting", "die");
    begin(&mut policy, &[FAULT_SEED, 5, 6, 7]);
    failure(&act(&mut policy, &[0])[0]);
    let chunks = act(&mut policy, &[1, 2, 3]);
    let calls = chunks.iter().map(|chunk| first(chunk)[5]);
    assert_eq!(calls.collect::<Vec<_>>(), [1.0; 3]);
}

#[test]
fn an_array_that_cannot_be_taken_costs_the_rows_of_its_call() {
    for (fault, reason) in [
        ("shape", "`act` gave [1, 1, 7], expected [1, 2, 7]"),
        ("nothing", "`act` gave an array of object, expected numbers"),
        ("text", "expected numbers"),
    ] {
        let (found, is_replaced) = fails("Toy", fault);
        assert!(!is_replaced && found.ends_with(reason), "{fault}: {found}");
    }
}

#[test]
fn numbers_that_are_not_finite_reach_the_check_of_all_policies() {
    for fault in ["NaN", "huge"] {
        let mut policy = faulty("Toy", fault);
        begin(&mut policy, &[FAULT_SEED]);
        let answers = act(&mut policy, &[0]);
        let mut values = answers[0].chunk().unwrap().values().iter();
        assert!(values.any(|value| !value.is_finite()), "{fault}");
    }
}

#[test]
fn an_observation_that_does_not_fit_costs_its_row_alone() {
    let mut policy = start("Toy", json!({}));
    begin(&mut policy, &[5, 6, 7]);
    let mut rows = [0, 1, 2].map(|env| seen(env, 9, 0.5, "go"));
    std::sync::Arc::make_mut(&mut rows[0].observation)
        .video
        .clear();
    std::sync::Arc::make_mut(&mut rows[2].observation)
        .state
        .remove("eef_position");
    let chunks = policy.act(&rows).unwrap();
    assert_eq!(
        failure(&chunks[0]),
        "the observation has no picture of camera front"
    );
    assert_eq!(first(&chunks[1])[3], 6.0);
    assert_eq!(
        failure(&chunks[2]),
        "the observation has no state eef_position"
    );
}

#[test]
fn a_worker_that_dies_is_replaced_and_named_with_its_last_lines() {
    let (reason, is_replaced) = fails("Toy", "die");
    assert!(is_replaced);
    let end = "its worker was killed by SIGKILL during `act` of 1 row\n    about to die";
    assert!(reason.ends_with(end), "{reason}");
    let (reason, is_replaced) = fails("Toy", "leave");
    assert!(
        is_replaced && reason.contains("raised SystemExit: that was it"),
        "{reason}"
    );
}

#[test]
fn a_worker_that_hangs_is_killed() {
    let config = json!({"policy_kwargs": {"fault": "hang"}, "act_timeout_s": 0.5});
    let mut policy = start("Toy", config);
    begin(&mut policy, &[5, FAULT_SEED]);
    let before = pid(&act(&mut policy, &[0])[0]);
    let chunks = act(&mut policy, &[1]);
    let end =
        "its worker gave no answer for 0.5 s during `act` of 1 row, and was killed\n    about";
    assert!(failure(&chunks[0]).contains(end), "{}", failure(&chunks[0]));
    policy.terms.settings.act_timeout = std::time::Duration::from_secs(20);
    assert_ne!(before, pid(&act(&mut policy, &[0])[0]));
    assert!(
        !Path::new(&format!("/proc/{before}")).exists(),
        "it was reaped"
    );
}

#[test]
fn a_worker_that_sends_nonsense_is_killed() {
    let (reason, is_replaced) = fails("Toy", "garbage");
    assert!(is_replaced);
    let end = "its worker sent nonsense during `act` of 1 row: `nonsense of 20 bytes`";
    assert!(reason.ends_with(end), "{reason}");
}

#[test]
fn a_worker_that_has_lost_its_gpu_is_replaced_before_the_next_call() {
    let (reason, is_replaced) = fails("Toy", "CUDA");
    assert!(
        is_replaced && reason.contains("CUDA error: an illegal"),
        "{reason}"
    );
}

#[test]
fn workers_are_replaced_a_limited_number_of_times() {
    let mut policy = faulty("Toy", "die");
    for _ in 0..2 {
        begin(&mut policy, &[FAULT_SEED]);
        failure(&act(&mut policy, &[0])[0]);
    }
    begin(&mut policy, &[5]);
    let text = policy
        .act(&[seen(0, 9, 0.5, "go")])
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("its worker failed 2 times (max_restarts is 1), at last: its worker was"),
        "{text}"
    );
}

#[test]
fn a_state_that_ended_with_its_worker_costs_its_episode() {
    for (factory, is_lost) in [("Remembering", true), ("Toy", false)] {
        let mut policy = faulty(factory, "die");
        begin(&mut policy, &[5, FAULT_SEED, 6]);
        first(&act(&mut policy, &[0])[0]);
        failure(&act(&mut policy, &[1])[0]);
        let chunks = act(&mut policy, &[0, 2]);
        assert_eq!(chunks[0].failure().is_some(), is_lost, "{factory}");
        assert_eq!(first(&chunks[1])[4], 0.0);
        if is_lost {
            let reason = failure(&chunks[0]);
            assert!(
                reason.ends_with("ended the state that the policy kept"),
                "{reason}"
            );
        }
        begin(&mut policy, &[7]);
        assert_eq!(first(&act(&mut policy, &[0])[0])[3], 7.0);
    }
}

#[test]
fn a_stop_ends_the_wait() {
    let lifeline = Lifeline::alone();
    let config = settings("Toy", json!({"policy_kwargs": {"fault": "hang"}}));
    let mut policy = try_start(&config, &lifeline).unwrap();
    begin(&mut policy, &[FAULT_SEED]);
    let other = lifeline.clone();
    let cutting = std::thread::spawn(move || {
        Lifeline::alone().rest(std::time::Duration::from_millis(300));
        other.cut();
    });
    let text = policy
        .act(&[seen(0, 9, 0.5, "go")])
        .unwrap_err()
        .to_string();
    assert!(
        text.ends_with("the evaluation was stopped during `act` of 1 row"),
        "{text}"
    );
    cutting.join().unwrap();
}
