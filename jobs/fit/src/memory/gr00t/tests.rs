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
    let config = size["config"].as_object().unwrap();
    let widths = NetworkWidths::new(config, &size["vlm"], &processor(&json!(keys)), None);
    let bytes = |name: &str| size["weights"][name].as_u64().unwrap();
    let weights = WeightBytes {
        large: bytes("large"),
        small: bytes("small"),
    };
    Network::new(
        NetworkWidths {
            text,
            ..widths.unwrap()
        },
        weights,
        2,
    )
}

/// Returns the configuration of a processor with these cameras.
fn processor(keys: &Value) -> Value {
    let video = json!({"delta_indices": [0], "modality_keys": keys});
    json!({"image_target_size": [256, 256], "modality_configs": {"new_embodiment": {"video": video}}})
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
        let graph = match peak["graphs"] == true {
            true => network.peak(rows).graph - UNSEEN,
            false => 0,
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

    /// Asserts that the estimate is not below what was measured, and at most so many times as much.
    #[track_caller]
    fn assert_at_most(&self, times: f64) {
        let (ratio, peak) = (self.ratio(), &self.peak);
        let [measured, estimated] = [self.measured, self.estimated].map(|bytes| bytes / MIB);
        let told = format!("{peak}: {measured:.0} MiB, {estimated:.0} MiB estimated");
        assert!((1.0..=times).contains(&ratio), "{told}, {ratio:.3}");
    }
}

/// Returns all peaks of a size, estimated for the number of tokens that `text` returns.
fn compared(name: &str, text: impl Fn(&Value) -> u64) -> Vec<MeasuredPeak> {
    let measured: Value = serde_json::from_str(MEASURED).unwrap();
    let size = &measured[name];
    let compared = |peak: &Value| MeasuredPeak::new(size, peak, text(peak));
    let peaks = size["peaks"].as_array().unwrap();
    peaks.iter().map(compared).collect()
}

fn own_text(peak: &Value) -> u64 {
    peak["text"].as_u64().unwrap()
}

#[test]
fn the_estimate_for_the_released_size_is_never_below_and_at_most_15_percent_above() {
    let mut peaks = compared("full", |_| TEXT_TOKENS);
    peaks.retain(|it| own_text(&it.peak) <= TEXT_TOKENS);
    // Three numbers of cameras, five of rows, with graphs and without.
    assert_eq!(peaks.len(), 30);
    peaks.iter().for_each(|it| it.assert_at_most(1.15));
}

#[test]
fn with_the_length_of_the_prompts_known_it_is_at_most_8_percent_above() {
    let peaks = compared("full", own_text);
    let has_long = peaks.iter().any(|it| own_text(&it.peak) == 60);
    assert!(has_long, "longer prompts than are assumed");
    peaks.iter().for_each(|it| it.assert_at_most(1.08));
}

/// For a small network, 20 MiB are one segment of the allocator more or less, so the test does not
/// compare ratios.
#[test]
fn the_estimate_for_small_sizes_is_never_below_and_at_most_two_segments_above() {
    let sizes = ["160m", "tiny"].into_iter();
    for it in sizes.flat_map(|name| compared(name, own_text)) {
        let above = it.estimated - it.measured;
        assert!((0.0..=40.0 * MIB).contains(&above), "{}", it.peak);
    }
}

#[test]
fn more_pictures_and_wider_numbers_never_take_less() {
    let measured: Value = serde_json::from_str(MEASURED).unwrap();
    let network = |cameras| network(&measured["full"], cameras, TEXT_TOKENS);
    let of = |cameras: u64, rows: u64| network(cameras).peak(rows).activations;
    assert!(of(2, 8) > of(1, 8));
    assert!(of(3, 8) > of(2, 8));
    assert!(of(1, 64) > of(1, 32));
    assert!(of(1, 256) > of(1, 64));
}

#[test]
fn graphs_are_counted_for_every_size_of_a_batch() {
    let measured: Value = serde_json::from_str(MEASURED).unwrap();
    let network = network(&measured["full"], 1, TEXT_TOKENS);
    let found = network.graphs(2);
    assert_eq!(found, network.peak(1).graph + network.peak(2).graph);
}

#[test]
fn widths_come_from_the_files_of_a_checkpoint() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fixture = root.join("tests/fixtures/gr00t/case_a_single");
    let widths = NetworkWidths::read(&fixture, None, None).unwrap();
    assert_eq!(widths.images, 1);
    assert_eq!(widths.patches, 256);
    assert_eq!(widths.vision, 24);
    assert_eq!(widths.language, 48);
    assert_eq!(widths.cross_blocks, 3);
    assert_eq!(widths.horizon, 16);
    assert_eq!(widths.layers, 4);
    assert_eq!(NetworkWidths::read(Path::new("/nowhere"), None, None), None);
}

#[test]
fn widths_that_are_none_are_refused() {
    for config in [
        json!({"action_horizon": u64::MAX}),
        json!({"select_layer": 60_000}),
    ] {
        let config = config.as_object().unwrap();
        let widths = NetworkWidths::new(config, &released_vlm(), &processor(&json!(["x"])), None);
        assert_eq!(widths, None);
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
    let mut processor = processor(&json!(vec!["x"; 64]));
    processor["image_target_size"] = json!([4096, 4096]);
    let widths = NetworkWidths::new(config.as_object().unwrap(), &vlm, &processor, None).unwrap();
    let network = Network::new(widths, WeightBytes::default(), 4);
    assert!(network.peak(4096).activations > 0);
}
