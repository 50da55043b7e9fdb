//! Tests of failures: they cost the rows of one call, and a worker is replaced a limited number of
//! times.

use super::*;

/// What happens in calls with an episode of the seed 100, 101, ….
const FAULTS: [&str; 16] = [
    "raise",
    "write",
    "shape",
    "nothing",
    "text",
    "die",
    "leave",
    "garbage",
    "CUDA",
    "list",
    "whole",
    "half",
    "NaN",
    "huge",
    "chatter",
    "raise in reset",
];

#[test]
fn a_fault_costs_the_rows_of_its_call_and_the_worker_goes_on_or_is_replaced() {
    let faults = (100..)
        .zip(FAULTS)
        .map(|(seed, fault)| (seed.to_string(), json!(fault)));
    let faults: Map<_, _> = faults.collect();
    let config =
        json!({"policy_kwargs": {"faults": faults}, "act_timeout_s": 20, "max_restarts": 9});
    let mut policy = start("Remembering", config);
    rig::cases::check("src/policy/python/tests/faults.txt", |fault| {
        let seed = 100 + FAULTS.iter().position(|known| *known == fault).unwrap();
        begin(&mut policy, &[5, seed as u64]);
        let before = pid(&act(&mut policy, &[0])[0]);
        let answer = act(&mut policy, &[1]).remove(0);
        begin(&mut policy, &[5]);
        let after = pid(&act(&mut policy, &[0])[0]);
        let told = match (answer.failure(), answer.chunk()) {
            (Some(reason), _) => shown(reason),
            (_, Some(chunk)) if chunk.values().iter().any(|value| !value.is_finite()) => {
                "an action for the check of all policies".to_owned()
            }
            _ => format!("an action with x = {}", first(&answer)[1]),
        };
        told + match before == after {
            true => "\nthe worker goes on",
            false => "\nthe worker is replaced",
        }
    });
}

/// Returns a reason without folders, lines of code, and the frames of a traceback.
fn shown(reason: &str) -> String {
    let reason = reason.replace(&root().display().to_string(), "");
    let (told, traceback) = reason.split_once(" line ").unwrap_or((&reason, ""));
    let place = traceback.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let line = if traceback.is_empty() { "" } else { " line N" };
    let shown = format!("{told}{line}{place}");
    let lines = shown.lines().filter(|line| !line.starts_with("     "));
    lines.collect::<Vec<_>>().join("\n")
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
fn an_observation_that_does_not_fit_costs_its_row_alone() {
    let mut policy = start("Toy", json!({}));
    begin(&mut policy, &[5, 6, 7]);
    let mut rows = [0, 1, 2].map(|env| seen(env, 9, 0.5, "go"));
    let [mut blind, mut numb] = [0, 2].map(|row: usize| rows[row].now().clone());
    blind.video.clear();
    numb.state.remove("eef_position");
    rows[0].window = Window::new(blind.into());
    rows[2].window = Window::new(numb.into());
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
fn a_worker_that_hangs_is_killed() {
    let mut policy = faulty("Toy", "hang");
    begin(&mut policy, &[5, FAULT_SEED]);
    let before = pid(&act(&mut policy, &[0])[0]);
    policy.policy.terms.settings.process.act_timeout_s.0 = std::time::Duration::from_millis(500);
    let chunks = act(&mut policy, &[1]);
    let end = "its worker gave no answer for 0.5 s during `act` of 1 row\n    about";
    assert!(failure(&chunks[0]).contains(end), "{}", failure(&chunks[0]));
    policy.policy.terms.settings.process.act_timeout_s.0 = std::time::Duration::from_secs(20);
    assert_ne!(before, pid(&act(&mut policy, &[0])[0]));
    assert!(
        !Path::new(&format!("/proc/{before}")).exists(),
        "it was reaped"
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
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing tells when the call has begun; a cut before it has the same result"
    )]
    let cutting = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
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
