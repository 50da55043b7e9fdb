//! Writes the trained network as a model directory in the released layout.

use std::path::Path;

use models::Named;
use models::gr00t::{ModelConfig, VlmConfig};
use serde_json::{Map, Value, json};
use tch::Tensor;

use crate::Outcome;
use crate::network::{ACTION, CHUNK, EDGE, STATE};
use crate::scale;

/// Embodiment tag of the table-top arm.
const TAG: &str = "new_embodiment";

/// The cameras, in the order of the prompt.
const CAMERAS: [&str; 2] = ["front", "wrist"];

/// Files of the backbone's repository that do not depend on its size, which are copied.
const COPIED: [&str; 3] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.json",
];

/// Writes all files. Tokenizer and chat template come from the folder `vlm_from`.
pub fn write(
    dir: &Path,
    named: &Named,
    (model, vlm): (&ModelConfig, &VlmConfig),
    vlm_from: &Path,
) -> Outcome<()> {
    let vlm_dir = dir.join("vlm");
    std::fs::create_dir_all(&vlm_dir)?;
    write_network(dir, named, model)?;
    write_json(&dir.join("processor_config.json"), &processor())?;
    write_json(&dir.join("statistics.json"), &statistics())?;
    write_json(&dir.join("embodiment_id.json"), &json!({ TAG: 0 }))?;
    write_json(&vlm_dir.join("config.json"), &vlm.to_json())?;
    write_json(&vlm_dir.join("preprocessor_config.json"), &preprocessor())?;
    for name in COPIED {
        std::fs::write(vlm_dir.join(name), std::fs::read(vlm_from.join(name))?)?;
    }
    Ok(())
}

/// Writes `config.json` and the tensors.
pub fn write_network(dir: &Path, named: &Named, model: &ModelConfig) -> Outcome<()> {
    write_json(&dir.join("config.json"), &model.to_json())?;
    Ok(Tensor::write_safetensors(
        named,
        dir.join("model.safetensors"),
    )?)
}

fn write_json(path: &Path, value: &Value) -> Outcome<()> {
    Ok(std::fs::write(path, format!("{value:#}\n"))?)
}

fn processor() -> Value {
    let modality = |keys: Vec<&str>, indices: Vec<i64>, configs: Value| {
        json!({
            "delta_indices": indices,
            "modality_keys": keys,
            "sin_cos_embedding_keys": null,
            "mean_std_embedding_keys": null,
            "action_configs": configs,
        })
    };
    let action =
        json!({"rep": "ABSOLUTE", "type": "NON_EEF", "format": "DEFAULT", "state_key": null});
    let actions: Vec<_> = scale::ACTION.iter().map(|_| action.clone()).collect();
    let names = |table: &[(&'static str, &[f64], &[f64])]| {
        table.iter().map(|row| row.0).collect::<Vec<_>>()
    };
    json!({
        "processor_class": "Gr00tN1d7Processor",
        "processor_kwargs": {
            "modality_configs": { TAG: {
                "video": modality(CAMERAS.to_vec(), vec![0], Value::Null),
                "state": modality(names(&scale::STATE), vec![0], Value::Null),
                "action": modality(names(&scale::ACTION), (0..CHUNK).collect(), actions.into()),
                "language": modality(vec!["annotation.human.task_description"], vec![0], Value::Null),
            }},
            "image_crop_size": [EDGE, EDGE],
            "image_target_size": [EDGE, EDGE],
            "shortest_image_edge": EDGE,
            "crop_fraction": 1.0,
            "use_albumentations": true,
            "formalize_language": true,
            "model_name": "nvidia/Cosmos-Reason2-2B",
            "model_type": "qwen",
            "max_state_dim": STATE,
            "max_action_dim": ACTION,
            "max_action_horizon": CHUNK,
            "use_percentiles": false,
            "clip_outliers": true,
            "apply_sincos_state_encoding": false,
            "use_relative_action": false,
            "exclude_state": false,
        }
    })
}

fn statistics() -> Value {
    let part = |table: &[(&str, &[f64], &[f64])]| -> Map<String, Value> {
        table
            .iter()
            .map(|(name, low, high)| ((*name).to_owned(), range(low, high)))
            .collect()
    };
    json!({ TAG: { "state": part(&scale::STATE), "action": part(&scale::ACTION), "relative_action": {} } })
}

/// Returns statistics for a range, with the mean and deviation of a uniform distribution. Nothing
/// reads these two here.
fn range(low: &[f64], high: &[f64]) -> Value {
    let each = |value: fn(f64, f64) -> f64| {
        low.iter()
            .zip(high)
            .map(|(&low, &high)| value(low, high))
            .collect::<Vec<_>>()
    };
    json!({
        "min": low, "max": high, "q01": low, "q99": high,
        "mean": each(|low, high| (low + high) / 2.0),
        "std": each(|low, high| (high - low) / 12.0_f64.sqrt()),
    })
}

fn preprocessor() -> Value {
    json!({
        "do_convert_rgb": true, "do_normalize": true, "do_rescale": true, "do_resize": true,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "merge_size": 2, "patch_size": 16, "temporal_patch_size": 2,
        "processor_class": "Qwen3VLProcessor",
        "resample": 3, "rescale_factor": 1.0 / 255.0,
        // With these limits an image of EDGE pixels is not resized.
        "size": { "shortest_edge": 1024, "longest_edge": 16_777_216 },
    })
}
