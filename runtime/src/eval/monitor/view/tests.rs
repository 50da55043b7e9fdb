//! Rates, time left, remarks and the table of a run.

use super::*;
use crate::clock::now;
use crate::eval::monitor::meter::GpuBusy;

fn beat(steps: u64, ended: u64, own: u64) -> Beat {
    Beat {
        job: "push".to_owned(),
        steps,
        ended,
        ended_solved: ended / 2,
        own,
        jobs: 1,
        done: ended,
        of: own,
        solved: ended / 2,
        device: "cpu".to_owned(),
        sim_s: steps as f64 / 20.0,
        ..Beat::default()
    }
}

fn expected(episodes: u64) -> EarlierResults {
    EarlierResults {
        expected: Some(episodes),
        ..EarlierResults::default()
    }
}

fn after(seconds: u64, start: Instant) -> Instant {
    start + Duration::from_secs(seconds)
}

#[test]
fn rates_and_the_time_left_are_those_of_the_last_minute() {
    let start = now();
    let tally = JobTally {
        ended: 20,
        solved: 10,
    };
    let before = EarlierResults {
        by_job: [(JobIndex(0), tally)].into(),
        policies: 1,
        ..expected(220)
    };
    let mut view = RunView::new(before, 2);
    view.on(&[beat(0, 0, 100), beat(0, 0, 100)], start);
    let snapshot = view.on(&[beat(100, 10, 100), beat(50, 20, 100)], after(10, start));
    // The slower rank has 90 left at 1 a second.
    let wanted =
        "0/2 jobs, 50/220 episodes, 50.0 % solved (95 %: 36.6 to 63.4), 3.0 episodes/s, 1:30 left";
    assert_eq!(snapshot.summary(), wanted);
    let rank = &snapshot.ranks[0];
    assert_eq!((rank.steps_per_s, rank.sim_busy), (10.0, 0.5));
}

#[test]
fn several_policies_and_variants_have_no_rate_in_common() {
    for (policies, has_variants, solved) in [
        (3, false, "3 solved by 3 policies"),
        (1, true, "3 solved, with variations"),
    ] {
        let before = EarlierResults {
            policies,
            has_variants,
            ..expected(100)
        };
        let snapshot = RunView::new(before, 1).on(&[beat(10, 6, 100)], now());
        let wanted = format!("0/1 jobs, 6/100 episodes, {solved}");
        assert_eq!(snapshot.summary(), wanted);
    }
}

#[test]
fn ranks_that_take_what_comes_are_done_together() {
    let start = now();
    let mut view = RunView::new(expected(100), 2);
    view.on(&[beat(0, 0, 0), beat(0, 0, 0)], start);
    let snapshot = view.on(&[beat(10, 5, 0), beat(10, 15, 0)], after(10, start));
    assert_eq!(snapshot.left, Some(Duration::from_secs(40)));
}

#[test]
fn a_slow_rank_and_a_still_one_are_named() {
    let start = now();
    let mut view = RunView::new(EarlierResults::default(), 3);
    view.on(&[beat(1, 0, 400), beat(1, 0, 400), beat(1, 0, 400)], start);
    let beats = [beat(90, 40, 400), beat(90, 40, 400), beat(9, 4, 400)];
    let snapshot = view.on(&beats, after(10, start));
    let slow = "rank 2 is slow: 16:30 left, 1:30 in the middle";
    assert_eq!(snapshot.remarks(), [slow]);
    let moved = [beat(900, 80, 400), beat(90, 40, 400), beat(900, 80, 400)];
    let snapshot = view.on(&moved, after(45, start));
    assert_eq!(snapshot.remarks(), ["rank 1: no step for 0:35"]);
}

#[test]
fn a_rank_that_is_started_again_has_no_negative_rate() {
    let start = now();
    let mut view = RunView::new(EarlierResults::default(), 1);
    view.on(&[beat(100, 10, 0)], start);
    let snapshot = view.on(&[beat(0, 8, 0)], after(10, start));
    assert_eq!((snapshot.rate, snapshot.ranks[0].steps_per_s), (0.0, 0.0));
}

#[test]
fn a_gpu_is_busy_where_its_driver_tells() {
    let (start, mut view) = (now(), RunView::new(EarlierResults::default(), 2));
    let busy = |busy_s, seen_s| Some(GpuBusy { busy_s, seen_s });
    let beats = |gpu_busy| {
        let mut own = beat(1, 0, 4);
        own.gpu_busy = gpu_busy;
        [own, beat(1, 0, 4)]
    };
    view.on(&beats(None), start);
    view.on(&beats(busy(5.0, 10.0)), start);
    let snapshot = view.on(&beats(busy(8.0, 14.0)), after(4, start));
    let busy = [0, 1].map(|rank| snapshot.ranks[rank].gpu_busy);
    assert_eq!(busy, [Some(8.0 / 14.0), None]);
    let table = snapshot.table(8);
    let is_told = [1, 2].map(|row| table[row].ends_with("  cpu 57 % busy"));
    assert_eq!(is_told, [true, false], "{table:#?}");
}

#[test]
fn a_table_of_many_ranks_shows_those_that_take_longest() {
    let start = now();
    let mut view = RunView::new(expected(6400), 64);
    view.on(&vec![beat(0, 0, 100); 64], start);
    let beats: Vec<_> = (0..64).map(|rank| beat(10, 1 + rank, 100)).collect();
    let table = view.on(&beats, after(10, start)).table(8);
    assert!(
        table.len() <= 15 && table[1].starts_with("   0  push"),
        "{table:#?}"
    );
    let has_rest = table.iter().any(|line| line.contains("and 56 ranks"));
    assert!(has_rest, "{table:#?}");
    let rows = table[1..9].iter().map(|line| line.find('p'));
    let columns: std::collections::BTreeSet<_> = rows.collect();
    assert_eq!(
        columns.len(),
        1,
        "columns stand below each other: {table:#?}"
    );
}
