//! Compares the model of a network with measured peaks of libtorch's allocator.

use super::*;
use serde_json::json;

const MIB: f64 = (1 << 20) as f64;

/// Peaks of networks of three sizes in bfloat16, one process each; `tests/imitation/test_memory.py
/// --write` measures them again.
const MEASURED: &str = include_str!("measured.json");

/// The assumed memory of CUDA itself, which the measured peaks do not include.
const UNSEEN: u64 = 16 << 20;

/// Returns a network with this number of text tokens: that of the measured peak, or the one assumed
/// for every job.
fn network(size: &Value, cameras: u64, text: u64) -> Network {
    let keys: Vec<_> = (0..cameras)
        .map(|camera| format!("camera_{camera}"))
        .collect();
    let processor = json!({"image_target_size": [256, 256],
        "modality_configs": {"new_embodiment": {"video": {"delta_indices": [0], "modality_keys": keys}}}});
    let widths = NetworkWidths::new(
        size["config"].as_object().unwrap(),
        &size["vlm"],
        &processor,
        None,
    )
    .unwrap();
    let bytes = |name: &str| size["weights"][name].as_u64().unwrap();
    Network::new(
        NetworkWidths { text, ..widths },
        WeightBytes {
            large: bytes("large"),
            small: bytes("small"),
        },
        2,
    )
}

/// A peak: bytes in addition to the weights, measured and estimated.
struct MeasuredPeak {
    peak: Value,
    measured: f64,
    estimated: f64,
}

impl MeasuredPeak {
    fn new(size: &Value, peak: &Value, text: u64) -> Self {
        let number = |name: &str| peak[name].as_u64().unwrap();
        let (network, rows) = (network(size, number("cameras"), text), number("rows"));
        let graph = if peak["graphs"] == true {
            network.peak(rows).graph - UNSEEN
        } else {
            0
        };
        let measured = number("reserved") as f64 - network.weights() as f64;
        Self {
            peak: peak.clone(),
            measured,
            estimated: (network.peak(rows).activations + graph) as f64,
        }
    }

    fn ratio(&self) -> f64 {
        self.estimated / self.measured
    }

    /// Prints the comparison, for `--nocapture`.
    fn print(&self) {
        let Self {
            peak,
            measured,
            estimated,
        } = self;
        println!(
            "{peak}: {:.0} MiB, {:.0} MiB estimated, {:.3}",
            measured / MIB,
            estimated / MIB,
            self.ratio()
        );
    }
}

/// Returns all peaks of a size, estimated for the number of tokens that `text` returns.
fn compared(name: &str, text: impl Fn(&Value) -> u64) -> Vec<MeasuredPeak> {
    let measured: Value = serde_json::from_str(MEASURED).unwrap();
    let size = &measured[name];
    let compared = |peak: &Value| MeasuredPeak::new(size, peak, text(peak));
    let found: Vec<_> = size["peaks"]
        .as_array()
        .unwrap()
        .iter()
        .map(compared)
        .collect();
    found.iter().for_each(MeasuredPeak::print);
    found
}

fn own_text(peak: &Value) -> u64 {
    peak["text"].as_u64().unwrap()
}

#[test]
fn the_estimate_for_the_released_size_is_never_below_and_at_most_15_percent_above() {
    let mut peaks = compared("full", |_| TEXT_TOKENS);
    peaks.retain(|it| own_text(&it.peak) <= TEXT_TOKENS);
    assert_eq!(
        peaks.len(),
        30,
        "three numbers of cameras, five of rows, with graphs and without"
    );
    for it in peaks {
        assert!(
            (1.0..=1.15).contains(&it.ratio()),
            "{}: {}",
            it.peak,
            it.ratio()
        );
    }
}

#[test]
fn with_the_length_of_the_prompts_known_it_is_at_most_8_percent_above() {
    let peaks = compared("full", own_text);
    assert!(
        peaks.iter().any(|it| own_text(&it.peak) == 60),
        "longer prompts than are assumed"
    );
    for it in peaks {
        assert!(
            (1.0..=1.08).contains(&it.ratio()),
            "{}: {}",
            it.peak,
            it.ratio()
        );
    }
}

/// For a small network, 20 MiB are one segment of the allocator more or less, so the test does not
/// compare ratios.
#[test]
fn the_estimate_for_small_sizes_is_never_below_and_at_most_two_segments_above() {
    for it in ["160m", "tiny"]
        .into_iter()
        .flat_map(|name| compared(name, own_text))
    {
        assert!(
            (0.0..=40.0 * MIB).contains(&(it.estimated - it.measured)),
            "{}",
            it.peak
        );
    }
}

#[test]
fn more_pictures_and_wider_numbers_never_take_less() {
    let measured: Value = serde_json::from_str(MEASURED).unwrap();
    let of = |cameras: u64, rows: u64| {
        network(&measured["full"], cameras, TEXT_TOKENS)
            .peak(rows)
            .activations
    };
    assert!(
        of(2, 8) > of(1, 8)
            && of(3, 8) > of(2, 8)
            && of(1, 64) > of(1, 32)
            && of(1, 256) > of(1, 64)
    );
}

#[test]
fn graphs_are_counted_for_every_size_of_a_batch() {
    let measured: Value = serde_json::from_str(MEASURED).unwrap();
    let network = network(&measured["full"], 1, TEXT_TOKENS);
    assert_eq!(
        network.graphs(2),
        network.peak(1).graph + network.peak(2).graph
    );
}

#[test]
fn widths_come_from_the_files_of_a_checkpoint() {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gr00t/case_a_single");
    let widths = NetworkWidths::read(&fixture, None, None).unwrap();
    assert_eq!(
        (
            widths.images,
            widths.patches,
            widths.vision,
            widths.language
        ),
        (1, 256, 24, 48)
    );
    assert_eq!(
        (widths.cross_blocks, widths.horizon, widths.layers),
        (3, 16, 4)
    );
    assert_eq!(NetworkWidths::read(Path::new("/nowhere"), None, None), None);
}

#[test]
fn widths_that_are_none_are_refused() {
    let processor = json!({"modality_configs": {"a": {"video": {"delta_indices": [0], "modality_keys": ["x"]}}}});
    for config in [
        json!({"action_horizon": u64::MAX}),
        json!({"select_layer": 60_000}),
    ] {
        assert_eq!(
            NetworkWidths::new(
                config.as_object().unwrap(),
                &released_vlm(),
                &processor,
                None
            ),
            None
        );
    }
}

#[test]
fn the_largest_sizes_that_are_believed_do_not_overflow() {
    let config = json!({"select_layer": MAX_COUNT, "input_embedding_dim": MAX_WIDTH, "action_horizon": MAX_WIDTH});
    let mut vlm = released_vlm();
    for name in ["hidden_size", "intermediate_size"] {
        vlm["text_config"][name] = MAX_WIDTH.into();
        vlm["vision_config"][name] = MAX_WIDTH.into();
    }
    let processor = json!({"image_target_size": [4096, 4096],
        "modality_configs": {"a": {"video": {"delta_indices": [0], "modality_keys": vec!["x"; 64]}}}});
    let widths = NetworkWidths::new(config.as_object().unwrap(), &vlm, &processor, None).unwrap();
    assert!(
        Network::new(widths, WeightBytes::default(), 4)
            .peak(4096)
            .activations
            > 0
    );
}
