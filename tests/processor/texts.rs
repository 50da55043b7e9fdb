//! Tests of prompts and token IDs.

use std::path::{Path, PathBuf};

use gr00t::processor::{PreparedRow, Prompts, collate};
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
            let prompts = Prompts::read(
                &case.join("vlm"),
                entry["formalize_language"].as_bool().unwrap(),
            )
            .unwrap();
            assert_eq!(
                prompts.render(text, 1).unwrap(),
                entry["rendered"].as_str().unwrap()
            );
            assert_eq!(
                prompts.tokens(text, &[IMAGE_TOKENS]).unwrap()[..],
                ids(&entry["input_ids"]),
                "`{text}`"
            );
            // The second result comes from the cache.
            assert_eq!(
                prompts.tokens(text, &[IMAGE_TOKENS]).unwrap()[..],
                ids(&entry["input_ids"]),
                "`{text}`"
            );
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
        let samples: Vec<PreparedRow> = batch["texts"]
            .as_array()
            .unwrap()
            .iter()
            .map(sample)
            .collect();
        let inputs = collate(&samples.iter().collect::<Vec<_>>(), prompts.padding_id()).unwrap();
        let rows = |name: &str| {
            batch[name]
                .as_array()
                .unwrap()
                .iter()
                .map(ids)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            Vec::<Vec<i64>>::try_from(&inputs.input_ids).unwrap(),
            rows("input_ids")
        );
        assert_eq!(
            Vec::<Vec<i64>>::try_from(&inputs.attention_mask).unwrap(),
            rows("attention_mask")
        );
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
    assert!(
        Prompts::read(&case.join("vlm"), true)
            .unwrap()
            .tokens(text, &[4])
            .is_ok()
    );
}

/// The real vocabulary is third-party and not committed: this needs `RRUN_TOKENIZER_GOLDENS`.
#[test]
fn the_released_vocabulary_gives_the_ids_of_the_reference() {
    let Some(dir) = std::env::var_os("RRUN_TOKENIZER_GOLDENS").map(PathBuf::from) else {
        eprintln!("skipped: RRUN_TOKENIZER_GOLDENS is not set");
        return;
    };
    let prompts = with_template(&dir);
    assert_eq!(
        (prompts.image_id(), prompts.padding_id()),
        (151_655, 151_643)
    );
    for entry in json(&dir.join("cases.json"))["cases"].as_array().unwrap() {
        let text = entry["text"].as_str().unwrap();
        assert_eq!(
            prompts.encode(text).unwrap(),
            ids(&entry["input_ids"]),
            "`{text}`"
        );
    }
}

/// Reads a copy of the folder with the chat template of the goldens, because it has none.
fn with_template(dir: &Path) -> Prompts {
    let together = tempfile::tempdir().unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::os::unix::fs::symlink(dir.join(name), together.path().join(name)).unwrap();
    }
    let template = cases_with("cases.json")
        .remove(0)
        .join("vlm/chat_template.json");
    std::os::unix::fs::symlink(template, together.path().join("chat_template.json")).unwrap();
    Prompts::read(together.path(), true).unwrap()
}
