//! Tests the rules of capturing on a CPU.

mod fixtures;

use std::convert::Infallible;

use proptest::prelude::*;
use tch::Kind;

use super::*;
use crate::graphs::tests::fixtures::{EngineRefusal, Log, graphs};

/// Doubles `value` in a pass of `rows` rows.
fn run(graphs: &mut Graphs, rows: i64, value: f64) -> f64 {
    let full = |width| Tensor::full([rows, width], value, (Kind::Float, Device::Cpu));
    let pass: PassFn = Rc::new(|batch: &[Tensor]| &batch[0] + &batch[1]);
    let key = PassShape {
        rows,
        tokens: 0,
        detail: vec![],
    };
    let Ok(out) = graphs.run(Some(key), &[full(2), full(1)], || Ok::<_, Infallible>(pass));
    assert_eq!(out.size(), [rows, 2]);
    out.double_value(&[rows - 1, 1])
}

#[test]
fn a_shape_is_captured_the_second_time_and_replayed_from_then_on() {
    let (mut graphs, log) = graphs(1, 10, None);
    let counts = |log: &Log| (log.captures.get(), log.replays.get());
    assert_eq!((run(&mut graphs, 2, 1.0), counts(&log)), (2.0, (0, 0)));
    assert_eq!((run(&mut graphs, 2, 2.0), counts(&log)), (4.0, (1, 1)));
    assert_eq!((run(&mut graphs, 2, 3.0), counts(&log)), (6.0, (1, 2)));
    assert_eq!(
        (run(&mut graphs, 3, 4.0), counts(&log)),
        (8.0, (1, 2)),
        "another shape has its own graph"
    );
    assert_eq!((graphs.kept(), graphs.off()), (1, None));
}

#[test]
fn the_graph_that_was_longest_unused_makes_room_and_is_captured_again() {
    let (mut graphs, log) = graphs(4, 10, None);
    for rows in [1, 2, 3] {
        run(&mut graphs, rows, 1.0);
        run(&mut graphs, rows, 1.0);
    }
    assert_eq!(
        (graphs.kept(), log.captures.get(), log.trims.get()),
        (2, 3, 1)
    );
    assert_eq!(run(&mut graphs, 1, 5.0), 10.0);
    assert_eq!(
        log.captures.get(),
        4,
        "its shape was seen, one more capture"
    );
}

#[test]
fn a_graph_larger_than_all_that_may_be_kept_gives_its_result_and_goes() {
    let (mut graphs, log) = graphs(11, 10, None);
    run(&mut graphs, 1, 1.0);
    assert_eq!((run(&mut graphs, 1, 3.0), graphs.kept()), (6.0, 0));
    assert_eq!(
        (run(&mut graphs, 1, 4.0), log.captures.get()),
        (8.0, 1),
        "it is not captured again"
    );
}

#[test]
fn shapes_that_push_each_other_out_are_not_captured_for_ever() {
    let (mut graphs, log) = graphs(10, 10, None);
    for _ in 0..20 {
        assert_eq!(
            (run(&mut graphs, 1, 1.0), run(&mut graphs, 2, 2.0)),
            (2.0, 4.0)
        );
    }
    assert_eq!(log.captures.get(), 2 * CAPTURES as usize);
}

#[test]
fn what_cannot_be_captured_runs_operator_by_operator_with_a_reason() {
    for (refusal, reason) in [
        (
            EngineRefusal::Capture,
            "operation not permitted when stream is capturing",
        ),
        (EngineRefusal::Panic, "CUDA error"),
    ] {
        let (mut graphs, log) = graphs(1, 10, Some(refusal));
        let found: Vec<_> = (1..=4)
            .map(|value| run(&mut graphs, 1, f64::from(value)))
            .collect();
        assert_eq!(found, [2.0, 4.0, 6.0, 8.0]);
        assert_eq!(
            (log.captures.get(), graphs.off()),
            (1, Some(reason)),
            "it is not tried again"
        );
    }
}

#[test]
fn a_replay_that_fails_is_made_up_for() {
    let (mut graphs, _) = graphs(1, 10, Some(EngineRefusal::Replay));
    let found: Vec<_> = (1..=4)
        .map(|value| run(&mut graphs, 1, f64::from(value)))
        .collect();
    assert_eq!(found, [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(
        (graphs.kept(), graphs.off()),
        (0, Some("CUDA error: invalid resource handle"))
    );
}

#[test]
fn a_lost_gpu_does_not_turn_graphs_off() {
    let (mut graphs, _) = graphs(1, 10, Some(EngineRefusal::Lost));
    for value in 1..=4 {
        run(&mut graphs, 1, f64::from(value));
    }
    assert_eq!(graphs.off(), None);
}

#[test]
fn sizes_are_powers_of_two_and_those_between() {
    let mut sizes: Vec<_> = (1..=48).map(|rows| bucket(rows, usize::MAX)).collect();
    sizes.dedup();
    assert_eq!(sizes, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]);
}

#[test]
fn the_planner_counts_these_sizes() {
    for most in [1, 7, 24, 48] {
        let mut sizes: Vec<_> = (1..=most).map(|rows| bucket(rows, most) as u64).collect();
        sizes.dedup();
        assert_eq!(sizes, jobs::captured_graphs::batch_sizes(most as u64));
    }
}

proptest! {
    #[test]
    fn a_batch_grows_by_less_than_half_and_never_beyond_the_limit(rows in 1usize..10_000, most in 1usize..10_000) {
        let size = bucket(rows, most);
        prop_assert!(size >= rows && 2 * size < 3 * rows.max(2) + 1);
        prop_assert!(size <= most.max(rows));
        prop_assert_eq!(bucket(size, most), size);
    }
}
