//! Tests inference with captured passes, on a CPU, beside inference without.

use std::rc::Rc;

use models::gr00t::model::SamplerStart;
use models::gr00t::processor::{KeyActions, RgbPicture, RowInputs, StateSteps};
use tch::Device;

use crate::policy::Checkpoints;
use crate::policy::checkpoints::LoadedModel;
use crate::policy::gr00t::inference::{Gr00tInference, open_processor};
use crate::policy::gr00t::read;
use crate::policy::graphs_testing::{Log, graphs};

/// Returns the small policy that the project ships, with graphs on this CPU if `captures` is set.
fn inference(captures: bool) -> (Gr00tInference, Rc<LoadedModel>, Rc<Log>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites/demo_policy");
    let config = serde_json::json!({ "model_path": path });
    let settings = read(config.as_object().unwrap()).unwrap();
    let mut checkpoints = Checkpoints::new(Device::Cpu, crate::policy::Lifeline::alone());
    let loaded = checkpoints.gr00t(&settings).unwrap();
    let (graphs, log) = graphs(1, 100, None);
    if captures {
        *loaded.graphs.borrow_mut() = graphs;
    }
    let processor = open_processor(&settings).unwrap();
    (
        Gr00tInference::load(&settings, processor, &mut checkpoints).unwrap(),
        loaded,
        log,
    )
}

/// Infers rows that differ, each with its own noise.
fn actions(inference: &Gr00tInference, rows: usize, language: &str) -> Vec<Vec<KeyActions>> {
    let processor = &inference.processor;
    let pictures: Vec<_> = (0..rows)
        .map(|row| vec![(row * 40 % 256) as u8; 96 * 128 * 3])
        .collect();
    let states: Vec<Vec<f32>> = (0..rows).map(|row| vec![row as f32 * 0.1; 16]).collect();
    let (numbers, views) = (&processor.numbers, &processor.modalities.video.keys);
    let raw = |(picture, state): (&'static [u8], &'static [f32])| {
        let view = |key| {
            (
                String::as_str(key),
                vec![RgbPicture::new(96, 128, picture).unwrap()],
            )
        };
        let steps = |(key, width): (_, Option<usize>)| {
            let width = width.unwrap();
            (key, StateSteps::new(width, &state[..width]).unwrap())
        };
        RowInputs {
            video: views.iter().map(view).collect(),
            state: numbers.state_keys().into_iter().map(steps).collect(),
            instruction: language,
        }
    };
    let raws = pictures.into_iter().zip(states);
    let raws = raws.map(|(picture, state)| raw((picture.leak(), state.leak())));
    let start = |row: usize| SamplerStart::at(inference.noise(row as u64));
    let starts: Vec<_> = (0..rows).map(start).collect();
    let answers = inference.infer(raws.map(Ok).collect(), &starts).unwrap();
    answers
        .into_iter()
        .map(|row| row.unwrap().actions)
        .collect()
}

#[test]
fn rows_get_the_actions_that_they_get_without_graphs_whatever_fills_up_their_batch() {
    let ((mut eager, ..), (mut replayed, loaded, log)) = (inference(false), inference(true));
    eager.runner.max_rows = 6;
    replayed.runner.max_rows = 6;
    let words = ["push the block to the target", "push it"];
    for rows in [1, 5, 1, 5, 7, 5, 1, 7, 7] {
        for words in words {
            let [found, wanted] = [&replayed, &eager].map(|from| actions(from, rows, words));
            for (found, wanted) in found.iter().flatten().zip(wanted.iter().flatten()) {
                let pairs = found.values.iter().zip(&wanted.values);
                let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert_eq!(found.key, wanted.key);
                assert!(apart < 1e-4, "{rows} rows, {}: {apart:e}", found.key);
            }
        }
    }
    // The batches of 1, 5 and 7 rows (6 and 1) use the sizes 1 and 6, each with two prompt lengths.
    let kept = loaded.graphs.borrow().kept();
    assert_eq!((kept, log.captures.get()), (4, 4));
    assert!(log.replays.get() > 12, "{log:?}");
}
