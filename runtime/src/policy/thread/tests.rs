//! Rows, batches and failures of the policy's thread.

use std::sync::mpsc::channel;

use serde_json::{Value, json};

use super::*;
use crate::policy::tests::env_spec;
use crate::policy::{Chunk, RowError};

fn choice(policy: &str, config: Value) -> PolicyChoice {
    PolicyChoice {
        policy_type: policy.to_owned(),
        config: config.as_object().unwrap().clone(),
    }
}

fn rows(count: usize) -> Vec<PolicyRow> {
    let row = |env| PolicyRow {
        seed: env as u64,
        ..crate::policy::tests::row(env, crate::env::Observation::default())
    };
    (0..count).map(row).collect()
}

fn answers(
    thread: &PolicyThread,
    count: usize,
    max_batch: usize,
) -> Result<Vec<RowAnswer>, PolicyError> {
    let (give, answer) = channel();
    thread.infer(rows(count), max_batch, move |result| {
        drop(give.send(result.answers))
    });
    answer.recv().unwrap()
}

#[test]
fn rows_are_answered_in_order_in_batches_of_any_size() {
    let thread = PolicyThread::start(Device::Cpu).unwrap();
    thread
        .make(
            choice("random_action", json!({})),
            Some(&env_spec()),
            None,
            |_| true,
        )
        .unwrap();
    let together = answers(&thread, 3, usize::MAX).unwrap();
    assert_eq!(answers(&thread, 3, 2).unwrap(), together);
    assert_ne!(together[0], together[1]);
}

#[test]
fn an_inference_without_a_policy_is_an_error() {
    let thread = PolicyThread::start(Device::Cpu).unwrap();
    assert_eq!(
        answers(&thread, 1, 1).unwrap_err().to_string(),
        "no policy was made"
    );
}

/// Returns a policy whose server does not exist.
fn remote() -> PolicyChoice {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = json!({"remote_host": "127.0.0.1", "remote_port": port});
    choice("gr00t_remote_closedloop", config)
}

#[test]
fn what_is_waited_for_is_told_and_the_waiting_can_be_ended() {
    let thread = PolicyThread::start(Device::Cpu).unwrap();
    let mut told = Vec::new();
    let err = thread.make(remote(), Some(&env_spec()), None, |said| {
        told.extend(said);
        told.is_empty()
    });
    assert!(
        err.unwrap_err()
            .to_string()
            .ends_with("given up, because the evaluation ends")
    );
    assert!(
        told[0].ends_with("get_modality_config: connection refused; retrying for 300 s"),
        "{told:?}"
    );
}

#[test]
fn an_unanswered_question_answers_itself() {
    let (give, answer) = channel();
    let give = move |result: Inferred| drop(give.send(result.answers));
    drop(Give(Some(Box::new(give))));
    assert_eq!(
        answer.recv().unwrap().unwrap_err().to_string(),
        "the policy's thread has ended"
    );
}

#[test]
fn a_chunk_that_nothing_can_be_moved_by_fails_its_row_alone() {
    let facts = PolicyFacts {
        policy: "pi0_remote",
        action_names: vec!["x".to_owned(), "gripper".to_owned()],
        ..PolicyFacts::default()
    };
    let chunk = |last: f32| RowAnswer::Chunk(Chunk::new(2, vec![0.0, 1.0, 2.0, last]));
    let failed = |value: &str| {
        let reason = format!("policy `pi0_remote` gave {value} as `gripper` of action 1");
        RowAnswer::Failed(RowError(reason))
    };
    let given = vec![
        chunk(3.0),
        chunk(f32::INFINITY),
        chunk(f32::NAN),
        RowAnswer::End,
    ];
    let wanted = vec![chunk(3.0), failed("inf"), failed("NaN"), RowAnswer::End];
    assert_eq!(checked(given.clone(), 4, &facts).unwrap(), wanted);
    let wrong = checked(given, 5, &facts).unwrap_err().to_string();
    let wanted = "policy `pi0_remote` gave 4 chunks for 5 rows of 2 actions";
    assert_eq!(wrong, wanted);
    let short = vec![RowAnswer::Chunk(Chunk::new(1, vec![0.0]))];
    assert!(checked(short, 1, &facts).is_err());
}
