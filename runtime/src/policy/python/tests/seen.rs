//! Tests of what a policy sees, and of what becomes of its actions.

use super::*;

#[test]
fn a_policy_sees_pictures_states_texts_and_episodes() {
    let mut policy = start("Remembering", json!({"seed": 1000}));
    assert_eq!(
        (policy.facts().horizon, policy.facts().needs_video),
        (2, true)
    );
    begin(&mut policy, &[5, 6]);
    let rows = [seen(0, 10, 0.5, "go"), seen(1, 20, 1.5, "stop now")];
    let chunks = policy.act(&rows).unwrap();
    assert_eq!(first(&chunks[0])[..6], [10.0, 0.5, 2.0, 1005.0, 0.0, 2.0]);
    assert_eq!(first(&chunks[1])[..6], [20.0, 1.5, 8.0, 1006.0, 0.0, 2.0]);
    let chunks = policy.act(&[later(seen(1, 30, 2.5, ""), 1)]).unwrap();
    assert_eq!(first(&chunks[0])[..6], [30.0, 2.5, 0.0, 1006.0, 2.0, 2.0]);
    begin(&mut policy, &[7]);
    let [first_row, second_row] = rows;
    let chunks = policy.act(&[first_row, later(second_row, 2)]).unwrap();
    assert_eq!(first(&chunks[0])[..6], [10.0, 0.5, 2.0, 1007.0, 0.0, 3.0]);
    assert_eq!(first(&chunks[1])[..6], [20.0, 1.5, 8.0, 1006.0, 4.0, 3.0]);
}

#[test]
fn steps_are_counted_by_the_actions_that_are_executed() {
    let mut policy = start("Toy", json!({"action_chunk_length": 1}));
    begin(&mut policy, &[5]);
    let mut step = |inference| {
        let row = later(seen(0, 9, 0.5, "go"), inference);
        first(&policy.act(&[row]).unwrap()[0])[4]
    };
    assert_eq!([0, 1, 2].map(&mut step), [0.0, 1.0, 2.0]);
}

#[test]
fn a_policy_without_pictures_gets_none() {
    let mut policy = start("Toy", json!({"policy_kwargs": {"needs_video": false}}));
    assert!(!policy.facts().needs_video);
    begin(&mut policy, &[5]);
    let mut blind = seen(0, 9, 0.5, "go");
    let mut now = blind.now().clone();
    now.video.clear();
    blind.window = Window::new(now.into());
    let chunks = policy.act(&[blind]).unwrap();
    assert_eq!(first(&chunks[0])[..2], [-1.0, 0.5]);
}

#[test]
fn a_horizon_that_is_not_said_is_tried() {
    assert_eq!(start("Unspecified", json!({})).facts().horizon, 5);
}

#[test]
fn tensors_are_given_and_taken() {
    let mut policy = start("Tensors", json!({}));
    begin(&mut policy, &[5, 6]);
    let rows = [seen(0, 9, 0.5, "go"), seen(1, 19, 1.5, "go")];
    for _ in 0..2 {
        let chunks = policy.act(&rows).unwrap();
        assert_eq!(first(&chunks[0])[..3], [10.0, 0.5, 0.0]);
        assert_eq!(first(&chunks[1])[..3], [20.0, 1.5, 0.0]);
    }
}

#[test]
fn more_rows_than_a_call_takes_go_in_several_calls() {
    let mut policy = start("Toy", json!({}));
    let rows: Vec<_> = (0..600).map(|env| seen(env, 9, env as f32, "go")).collect();
    let chunks = policy.act(&rows).unwrap();
    let right = chunks
        .iter()
        .enumerate()
        .all(|(env, chunk)| first(chunk)[1] == env as f32);
    assert!(chunks.len() == 600 && right);
}

#[test]
fn a_policy_that_looks_back_sees_past_steps_of_each_episode_the_oldest_first() {
    let mut policy = start("LookingBack", json!({}));
    assert_eq!(policy.facts().looks_back, 2);
    begin(&mut policy, &[5, 6]);
    let mut rows = [seen(0, 1, 0.25, "go"), seen(1, 9, 0.5, "go")];
    for (level, x) in [(2, 0.5), (3, 0.75), (4, 1.0)] {
        let next = seen(0, level, x, "go").window.now().clone();
        rows[0].window.push(next, 2);
    }
    let chunks = policy.act(&rows).unwrap();
    assert_eq!(first(&chunks[0]), [0.5, 0.75, 1.0, 2.0, 3.0, 4.0, 0.0]);
    assert_eq!(
        first(&chunks[1]),
        [0.5, 0.5, 0.5, 9.0, 9.0, 9.0, 0.0],
        "before the first step there is the first"
    );
}
