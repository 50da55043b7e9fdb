//! Tests batching against a device with limited room for rows, with real error messages of
//! libtorch.

use std::path::Path;
use std::sync::mpsc::Receiver;

use proptest::prelude::*;
use tch::{Kind, Tensor};

use super::*;
use crate::policy::Checkpoints;

/// More bytes than any address space has (x86-64: 2^47).
const ABSURD: i64 = 1 << 50;

/// A device with room for `limit` rows, and the calls to it.
struct Small {
    limit: usize,
    asked: RefCell<Vec<usize>>,
}

impl Small {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            asked: RefCell::new(Vec::new()),
        }
    }

    /// Returns ten times each row if all fit.
    fn infer(&self, rows: &[&usize]) -> Result<Vec<usize>, PolicyError> {
        self.asked.borrow_mut().push(rows.len());
        let bytes = if rows.len() > self.limit { ABSURD } else { 1 };
        let tensor = Tensor::f_empty([bytes], (Kind::Uint8, Device::Cpu));
        let _room = tensor.map_err(RowError::new)?;
        Ok(rows.iter().map(|row| *row * 10).collect())
    }
}

fn runner() -> (Runner, Receiver<String>) {
    let (lifeline, heard) = Lifeline::heard();
    let mut checkpoints = Checkpoints::new(Device::Cpu, lifeline);
    (runner_of(&mut checkpoints, "checkpoint"), heard)
}

fn runner_of(checkpoints: &mut Checkpoints, path: &str) -> Runner {
    let graphs = Graphs::on(Device::Cpu, false);
    checkpoints.runner(Path::new(path), Rc::new(RefCell::new(graphs)))
}

fn shortage(count: u64, batch: Option<usize>) -> Shortage {
    Shortage { count, batch }
}

/// Returns the answers of a device for rows, none of which fails.
fn answers(runner: &Runner, rows: &[usize], device: &Small) -> Vec<usize> {
    let answers = runner.infer(rows, false, |rows| device.infer(rows));
    answers.unwrap().into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_batch_that_does_not_fit_is_halved_and_all_rows_are_answered() {
    let (device, (runner, heard)) = (Small::new(2), runner());
    let rows: Vec<usize> = (0..8).collect();
    let found = answers(&runner, &rows, &device);
    assert_eq!(found, [0, 10, 20, 30, 40, 50, 60, 70]);
    assert_eq!(*device.asked.borrow(), [8, 4, 2, 2, 2, 2]);
    assert_eq!(runner.shortage(), shortage(2, Some(2)));
    let said: Vec<_> = heard.try_iter().collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with(
        "out of memory with 8 rows in one inference: at most 2 from now on; --max-batch 2 "
    ));
    assert_eq!(answers(&runner, &rows, &device).len(), 8);
    assert_eq!(runner.shortage().count, 2, "it is remembered");
}

#[test]
fn another_job_of_the_checkpoint_knows_it_and_one_of_another_does_not() {
    let mut checkpoints = Checkpoints::new(Device::Cpu, Lifeline::alone());
    let (device, first) = (Small::new(1), runner_of(&mut checkpoints, "a"));
    answers(&first, &[0, 1], &device);
    let [same, other] = ["a", "b"].map(|path| runner_of(&mut checkpoints, path).shortage());
    assert_eq!((same, other), (shortage(0, Some(1)), Shortage::default()));
}

#[test]
fn one_row_that_does_not_fit_is_an_error_that_names_the_knobs() {
    let (device, (runner, _)) = (Small::new(0), runner());
    let refused = runner.infer(&[7, 8], false, |rows| device.infer(rows));
    let text = refused.unwrap_err().to_string();
    assert!(
        text.starts_with("out of memory: not even one row fits"),
        "{text}"
    );
    for word in ["num_envs", "--gpu-memory", "can't allocate memory"] {
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(*device.asked.borrow(), [2, 1, 1]);
    let none = shortage(3, Some(0));
    assert_eq!(runner.shortage(), none, "and not: at most one");
}

#[test]
fn a_shortage_that_passes_costs_nothing_but_a_try() {
    let (mut device, (mut runner, heard)) = (Small::new(0), runner());
    runner.max_rows = 1;
    let infer = |rows: &[&usize]| {
        let answer = device.infer(rows);
        device.limit = 1;
        answer
    };
    let answers = runner.infer(&[3, 4], false, infer);
    assert_eq!(answers.unwrap(), [Ok(30), Ok(40)]);
    assert_eq!(runner.shortage(), shortage(1, None));
    assert_eq!(heard.try_iter().count(), 0);
}

#[test]
fn a_row_that_fails_costs_no_other_row_its_answer() {
    let (device, (mut runner, _)) = (Small::new(2), runner());
    runner.max_rows = 4;
    let infer = |rows: &[&usize]| match rows.contains(&&3) {
        true => Err(RowError::no_state("key").into()),
        false => device.infer(rows),
    };
    let answers = runner.infer(&[0, 1, 2, 3, 4, 5, 6], false, infer).unwrap();
    let failed = || Err(RowError("the observation has no state key".to_owned()));
    let wanted = [Ok(0), Ok(10), Ok(20), failed(), Ok(40), Ok(50), Ok(60)];
    assert_eq!(answers, wanted);
    // The first four fail together and go alone, once each; the last three are halved.
    assert_eq!(*device.asked.borrow(), [1, 1, 1, 3, 1, 1, 1]);
    assert_eq!(runner.shortage().count, 1);
}

#[test]
fn rows_of_a_network_that_gives_fewer_results_are_errors() {
    let (runner, _) = runner();
    let none = |_: &[&usize]| Ok(Vec::<()>::new());
    let answers = runner.infer(&[1, 2], false, none).unwrap();
    assert_eq!(answers, vec![Err(RowError::not_inferred()); 2]);
}

#[test]
fn a_batch_is_filled_up_with_its_last_row_to_what_the_network_takes_or_captures() {
    let (device, (mut runner, _)) = (Small::new(9), runner());
    (runner.min_rows, runner.max_rows) = (2, 7);
    for (rows, fills, asked) in [(1, false, 2), (3, false, 3), (5, true, 6), (7, true, 7)] {
        let rows: Vec<usize> = (0..rows).collect();
        let infer = |rows: &[&usize]| device.infer(rows);
        let found = runner.infer(&rows, fills, infer).unwrap();
        let wanted: Vec<_> = rows.iter().map(|row| Ok(row * 10)).collect();
        assert_eq!((found, device.asked.take()), (wanted, vec![asked]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn with_room_for_a_row_all_are_answered_in_order_after_few_tries(
        counts in proptest::collection::vec(0usize..40, 1..5), limit in 1usize..40, max_rows in 1usize..40
    ) {
        let (device, (mut runner, _)) = (Small::new(limit), runner());
        runner.max_rows = max_rows;
        let most = counts.iter().copied().max().unwrap_or(0).min(max_rows);
        for count in counts {
            let rows: Vec<usize> = (0..count).collect();
            let found = answers(&runner, &rows, &device);
            prop_assert_eq!(found, rows.iter().map(|row| row * 10).collect::<Vec<_>>());
        }
        let falls = u64::from(most.checked_ilog2().unwrap_or(0));
        prop_assert!(runner.shortage().count <= falls, "{} of {falls}", runner.shortage().count);
        let failed = device.asked.borrow().iter().filter(|rows| **rows > limit).count() as u64;
        prop_assert_eq!(failed, runner.shortage().count);
    }
}
