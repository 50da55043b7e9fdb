//! The embodiments that a random checkpoint can be made for: names of cameras, states and actions,
//! and the ranges of their values.

use serde_json::{Map, Value, json};

/// Processor and statistics of the committed golden case. The checkpoint of another embodiment is
/// derived from them.
const PROCESSOR: &str =
    include_str!("../../tests/fixtures/gr00t/case_a_single/processor_config.json");
const STATISTICS: &str = include_str!("../../tests/fixtures/gr00t/case_a_single/statistics.json");

/// LIBERO's state as robosuite reports it over the workspace of a table: position in m, axis-angle
/// rotation in rad, fingers in m.
const LIBERO_STATE: [(&str, &[(f64, f64)]); 7] = [
    ("x", &[(-0.5, 0.2)]),
    ("y", &[(-0.4, 0.4)]),
    ("z", &[(0.0, 1.4)]),
    ("roll", &[(0.3, 3.6)]),
    ("pitch", &[(-3.6, 3.6)]),
    ("yaw", &[(-1.8, 1.4)]),
    ("gripper", &[(0.0, 0.04), (-0.04, 0.0)]),
];
/// Range of the SpaceMouse actions in LIBERO's demonstrations, relative to robosuite's largest
/// motion. The gripper is open at 1.
const LIBERO_ACTION: [(&str, &[(f64, f64)]); 7] = [
    ("x", &[(-0.9375, 0.9375)]),
    ("y", &[(-0.9375, 0.9375)]),
    ("z", &[(-0.9375, 0.9375)]),
    ("roll", &[(-0.375, 0.375)]),
    ("pitch", &[(-0.375, 0.375)]),
    ("yaw", &[(-0.375, 0.375)]),
    ("gripper", &[(0.0, 1.0)]),
];
/// Number of actions in a chunk of GR00T's `libero_sim`.
const LIBERO_HORIZON: usize = 16;

/// Robot whose tag, cameras, state and actions the checkpoint has.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Embodiment {
    /// One camera, seven actions, as in the tests.
    #[value(name = "simpler_env_google")]
    SimplerEnvGoogle,
    /// LIBERO: two cameras, chunks of 16 actions; runs with `jobs/suites/libero.json`.
    #[value(name = "libero_sim")]
    LiberoSim,
}

impl Embodiment {
    /// Returns the contents of `processor_config.json`, in which the network's widths are not
    /// filled in yet.
    pub fn processor(self) -> Value {
        let mut processor: Value =
            serde_json::from_str(PROCESSOR).expect("the committed file is JSON");
        if let Self::LiberoSim = self {
            processor["processor_kwargs"]["modality_configs"] = json!({"libero_sim": {
                "video": modality(["image", "wrist_image"], 1),
                "state": modality(LIBERO_STATE.map(|(name, _)| name), 1),
                "action": modality(LIBERO_ACTION.map(|(name, _)| name), LIBERO_HORIZON),
                "language": modality(["annotation.human.action.task_description"], 1),
            }});
        }
        processor
    }

    /// Returns the contents of `statistics.json`.
    pub fn statistics(self) -> Value {
        match self {
            Self::SimplerEnvGoogle => {
                serde_json::from_str(STATISTICS).expect("the committed file is JSON")
            }
            Self::LiberoSim => json!({"libero_sim": {
                "state": ranges(&LIBERO_STATE),
                "action": ranges(&LIBERO_ACTION),
                "relative_action": {},
            }}),
        }
    }
}

fn modality<const N: usize>(keys: [&str; N], steps: usize) -> Value {
    json!({
        "delta_indices": (0..steps).collect::<Vec<_>>(),
        "modality_keys": keys.to_vec(),
        "sin_cos_embedding_keys": null,
        "mean_std_embedding_keys": null,
        "action_configs": null,
    })
}

/// Returns the statistics of values that are distributed uniformly over their ranges.
fn ranges(table: &[(&str, &[(f64, f64)])]) -> Value {
    let mut statistics = Map::new();
    for (name, bounds) in table {
        let each = |value: fn(f64, f64) -> f64| {
            bounds
                .iter()
                .map(|&(low, high)| value(low, high))
                .collect::<Vec<_>>()
        };
        let entry = json!({
            "min": each(|low, _| low),
            "max": each(|_, high| high),
            "mean": each(|low, high| (low + high) / 2.0),
            "std": each(|low, high| (high - low) / 12f64.sqrt()),
            "q01": each(|low, high| low + 0.01 * (high - low)),
            "q99": each(|low, high| high - 0.01 * (high - low)),
        });
        statistics.insert((*name).to_owned(), entry);
    }
    Value::Object(statistics)
}
