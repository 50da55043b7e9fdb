//! Tests the rules of capturing on a CPU. The "graph" of these tests runs the pass again on the
//! tensors that existed when it was captured, and writes to the same result tensor, as CUDA's does.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;

use tch::Kind;

use super::*;
use crate::policy::gr00t::inference::{Inference, open_processor};
use crate::policy::gr00t::processor::{ActionRows, Picture, Raw, Rows};
use crate::policy::gr00t::{Loaded, Models, Settings};

/// A record of the calls.
#[derive(Debug, Default)]
struct Log {
    captures: Cell<usize>,
    replays: Cell<usize>,
    trims: Cell<usize>,
}

#[derive(Debug)]
struct Again {
    log: Rc<Log>,
    bytes: u64,
    /// Makes capturing fail with this error.
    refuses: Option<Refusal>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Refusal {
    Capture,
    Panic,
    Replay,
    Lost,
}

struct Tape {
    log: Rc<Log>,
    pass: Rc<dyn Fn() -> Tensor>,
    out: RefCell<Tensor>,
    bytes: u64,
    /// Makes replays after the first fail with this message.
    breaks: Option<&'static str>,
}

impl fmt::Debug for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tape")
    }
}

impl Engine for Again {
    fn device(&self) -> Device {
        Device::Cpu
    }

    fn capture(&self, pass: Rc<dyn Fn() -> Tensor>) -> Result<(Box<dyn Graph>, Tensor), String> {
        self.log.captures.set(self.log.captures.get() + 1);
        match self.refuses {
            Some(Refusal::Capture) => return Err("operation not permitted when stream is capturing\nmore".to_owned()),
            Some(Refusal::Panic) => panic!("{}", "CUDA error\nException raised from here".to_owned()),
            _ => {}
        }
        // The tensor has the right shape and is not computed yet.
        let out = pass().zeros_like();
        let tape = Tape {
            log: Rc::clone(&self.log),
            pass,
            out: RefCell::new(out.shallow_clone()),
            bytes: self.bytes,
            breaks: match self.refuses {
                Some(Refusal::Replay) => Some("CUDA error: invalid resource handle"),
                Some(Refusal::Lost) => Some("CUDA error: an illegal memory access was encountered"),
                _ => None,
            },
        };
        Ok((Box::new(tape), out))
    }

    fn feed(&self, to: &Batch, from: &Batch) -> Result<(), String> {
        to.tensors().into_iter().zip(from.tensors()).for_each(|(to, from)| to.shallow_clone().copy_(from));
        Ok(())
    }

    fn trim(&self) {
        self.log.trims.set(self.log.trims.get() + 1);
    }
}

impl Graph for Tape {
    fn replay(&self) -> Result<(), String> {
        let replays = self.log.replays.get() + 1;
        self.log.replays.set(replays);
        if let (Some(words), true) = (self.breaks, replays > 1) {
            return Err(words.to_owned());
        }
        self.out.borrow_mut().copy_(&(self.pass)());
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn graphs(bytes: u64, cap: u64, refuses: Option<Refusal>) -> (Graphs, Rc<Log>) {
    let log = Rc::new(Log::default());
    (Graphs::new(Box::new(Again { log: Rc::clone(&log), bytes, refuses }), cap), log)
}

/// Returns a batch whose noise is `value`, for a pass that doubles it.
fn batch(rows: i64, value: f64) -> Batch {
    let full = |shape: &[i64]| Tensor::full(shape, value, (Kind::Float, Device::Cpu));
    Batch { ids: full(&[rows]), pixels: full(&[rows, 3]), state: full(&[rows, 1]), noise: full(&[rows, 2]) }
}

fn run(graphs: &mut Graphs, rows: i64, value: f64) -> f64 {
    let pass: Pass = Rc::new(|batch: &Batch| &batch.noise + &batch.state);
    let made = || Ok::<_, Infallible>(pass);
    let Ok(out) = graphs.run(ConstantsKey::of_rows(rows), &batch(rows, value), made);
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
    assert_eq!((run(&mut graphs, 3, 4.0), counts(&log)), (8.0, (1, 2)), "another shape has its own graph");
    assert_eq!((graphs.kept(), graphs.off()), (1, None));
}

#[test]
fn the_graph_that_was_longest_unused_makes_room_and_is_captured_again() {
    let (mut graphs, log) = graphs(4, 10, None);
    for rows in [1, 2, 3] {
        run(&mut graphs, rows, 1.0);
        run(&mut graphs, rows, 1.0);
    }
    assert_eq!((graphs.kept(), log.captures.get(), log.trims.get()), (2, 3, 1));
    assert_eq!(run(&mut graphs, 1, 5.0), 10.0);
    assert_eq!(log.captures.get(), 4, "its shape was seen, one more capture");
}

#[test]
fn a_graph_larger_than_all_that_may_be_kept_gives_its_result_and_goes() {
    let (mut graphs, log) = graphs(11, 10, None);
    run(&mut graphs, 1, 1.0);
    assert_eq!((run(&mut graphs, 1, 3.0), graphs.kept()), (6.0, 0));
    assert_eq!((run(&mut graphs, 1, 4.0), log.captures.get()), (8.0, 1), "it is not captured again");
}

#[test]
fn shapes_that_push_each_other_out_are_not_captured_for_ever() {
    let (mut graphs, log) = graphs(10, 10, None);
    for _ in 0..20 {
        assert_eq!((run(&mut graphs, 1, 1.0), run(&mut graphs, 2, 2.0)), (2.0, 4.0));
    }
    assert_eq!(log.captures.get(), 2 * CAPTURES as usize);
}

#[test]
fn what_cannot_be_captured_runs_operator_by_operator_with_a_reason() {
    for (refusal, reason) in
        [(Refusal::Capture, "operation not permitted when stream is capturing"), (Refusal::Panic, "CUDA error")]
    {
        let (mut graphs, log) = graphs(1, 10, Some(refusal));
        let found: Vec<_> = (1..=4).map(|value| run(&mut graphs, 1, f64::from(value))).collect();
        assert_eq!(found, [2.0, 4.0, 6.0, 8.0]);
        assert_eq!((log.captures.get(), graphs.off()), (1, Some(reason)), "it is not tried again");
    }
}

#[test]
fn a_replay_that_fails_is_made_up_for() {
    let (mut graphs, _) = graphs(1, 10, Some(Refusal::Replay));
    let found: Vec<_> = (1..=4).map(|value| run(&mut graphs, 1, f64::from(value))).collect();
    assert_eq!(found, [2.0, 4.0, 6.0, 8.0]);
    assert_eq!((graphs.kept(), graphs.off()), (0, Some("CUDA error: invalid resource handle")));
}

#[test]
fn a_lost_gpu_does_not_turn_graphs_off() {
    let (mut graphs, _) = graphs(1, 10, Some(Refusal::Lost));
    for value in 1..=4 {
        run(&mut graphs, 1, f64::from(value));
    }
    assert_eq!(graphs.off(), None);
}

/// Returns the small policy that the project ships, with graphs on this CPU if `captures` is set.
fn inference(captures: bool) -> (Inference, Rc<Loaded>, Rc<Log>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites/demo_policy");
    let config = serde_json::json!({ "model_path": path });
    let settings = Settings::read(config.as_object().unwrap()).unwrap();
    let mut models = Models::new(Device::Cpu);
    let loaded = models.get(&settings.model_path, None, None).unwrap();
    let (graphs, log) = graphs(1, 100, None);
    *loaded.graphs.borrow_mut() = captures.then_some(graphs);
    let processor = open_processor(&settings).unwrap();
    (Inference::load(&settings, processor, &mut models).unwrap(), loaded, log)
}

/// Infers rows that differ, each with its own noise.
fn actions(inference: &Inference, rows: usize, max_rows: usize, language: &str) -> Vec<Vec<ActionRows>> {
    let processor = inference.processor();
    let pictures: Vec<_> = (0..rows).map(|row| vec![(row * 40 % 256) as u8; 96 * 128 * 3]).collect();
    let states: Vec<Vec<f32>> = (0..rows).map(|row| vec![row as f32 * 0.1; 16]).collect();
    let raw = |(picture, state): (&'static [u8], &'static [f32])| Raw {
        video: processor
            .modalities()
            .video
            .keys
            .iter()
            .map(|key| (key.as_str(), vec![Picture::new(96, 128, picture).unwrap()]))
            .collect(),
        state: processor
            .numbers()
            .state_keys()
            .into_iter()
            .map(|(key, width)| (key, width.unwrap()))
            .map(|(key, width)| (key, Rows::new(width, &state[..width]).unwrap()))
            .collect(),
        instruction: language,
    };
    let raws: Vec<_> =
        pictures.into_iter().zip(states).map(|(picture, state)| raw((picture.leak(), state.leak()))).collect();
    let noises: Vec<_> = (0..rows).map(|row| inference.noise(row as u64)).collect();
    inference.infer(&raws, &noises, max_rows).into_iter().map(Result::unwrap).collect()
}

#[test]
fn rows_get_the_actions_that_they_get_without_graphs_whatever_fills_up_their_batch() {
    let ((eager, ..), (replayed, loaded, log)) = (inference(false), inference(true));
    let words = ["push the block to the target", "push it"];
    for rows in [1, 5, 1, 5, 7, 5, 1, 7, 7] {
        for words in words {
            let (found, wanted) = (actions(&replayed, rows, 6, words), actions(&eager, rows, 6, words));
            for (found, wanted) in found.iter().flatten().zip(wanted.iter().flatten()) {
                let apart = found.values.iter().zip(&wanted.values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(found.key == wanted.key && apart < 1e-4, "{rows} rows, {}: {apart:e}", found.key);
            }
        }
    }
    // The batches of 1, 5 and 7 rows (6 and 1) use the sizes 1 and 6, each with two prompt lengths.
    assert_eq!((loaded.graphs.borrow().as_ref().unwrap().kept(), log.captures.get()), (4, 4));
    assert!(log.replays.get() > 12, "{log:?}");
}
