//! Tests of prompts and token IDs.

use models::gr00t::processor::{PreparedRow, Prompts, collate};
use serde_json::Value;
use tch::{Kind, Tensor};

use crate::processor::files::{cases_with, json};

/// Number of tokens of the single image in the prompts of the goldens: 256 x 256 pixels.
const IMAGE_TOKENS: usize = 64;

fn ids(value: &Value) -> Vec<i64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_i64().unwrap())
        .collect()
}

#[test]
fn prompts_and_ids_are_those_of_the_reference() {
    for case in cases_with("cases.json") {
        for entry in json(&case.join("cases.json"))["texts"].as_array().unwrap() {
            let text = entry["text"].as_str().unwrap();
            let formalizes = entry["formalize_language"].as_bool().unwrap();
            let prompts = Prompts::read(&case.join("vlm"), formalizes).unwrap();
            let rendered = prompts.render(text, 1).unwrap();
            assert_eq!(rendered, entry["rendered"].as_str().unwrap());
            // The second result comes from the cache.
            for _ in 0..2 {
                let tokens = prompts.tokens(text, &[IMAGE_TOKENS]).unwrap();
                assert_eq!(tokens[..], ids(&entry["input_ids"]), "`{text}`");
            }
        }
    }
}

#[test]
fn a_batch_is_padded_on_the_left() {
    for case in cases_with("cases.json") {
        let batch = &json(&case.join("cases.json"))["batch_padding"];
        let prompts = Prompts::read(&case.join("vlm"), true).unwrap();
        let sample = |text: &Value| PreparedRow {
            ids: prompts
                .tokens(text.as_str().unwrap(), &[IMAGE_TOKENS])
                .unwrap(),
            pixels: Tensor::zeros([4, 1536], (Kind::Float, tch::Device::Cpu)),
            grids: vec![[1, 2, 2]],
            state: vec![0.0; 2],
            state_steps: 1,
            embodiment_id: 0,
        };
        let texts = batch["texts"].as_array().unwrap();
        let samples: Vec<PreparedRow> = texts.iter().map(sample).collect();
        let inputs = collate(&samples.iter().collect::<Vec<_>>(), prompts.padding_id).unwrap();
        for (name, found) in [
            ("input_ids", &inputs.input_ids),
            ("attention_mask", &inputs.attention_mask),
        ] {
            let wanted: Vec<_> = batch[name].as_array().unwrap().iter().map(ids).collect();
            assert_eq!(Vec::<Vec<i64>>::try_from(found).unwrap(), wanted, "{name}");
        }
    }
}

#[test]
fn an_instruction_with_a_placeholder_is_refused_unless_formalized() {
    let case = cases_with("cases.json").remove(0);
    let text = "see <|image_pad|>";
    let prompts = Prompts::read(&case.join("vlm"), false).unwrap();
    let refusal = prompts.tokens(text, &[4]).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "the instruction is `see <|image_pad|>`, expected text without `<|image_pad|>`"
    );
    let formalizing = Prompts::read(&case.join("vlm"), true).unwrap();
    assert!(formalizing.tokens(text, &[4]).is_ok());
}
