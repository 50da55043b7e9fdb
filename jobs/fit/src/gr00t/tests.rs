//! Compares the formula with measured peaks of libtorch's allocator.

use super::*;

/// Peaks of networks of four sizes in bfloat16, one process each; `tests/imitation/test_memory.py
/// --write` measures them again.
const MEASURED: &str = include_str!("measured.json");

/// Returns a network with this number of text tokens: that of the measured peak, or the one assumed
/// for every job.
fn network(size: &Value, cameras: u64, text: u64) -> Network {
    let keys: Vec<_> = (0..cameras)
        .map(|camera| format!("camera_{camera}"))
        .collect();
    let processor = processor(&json!(keys), &size["edge"]);
    let shape = Shape::new(&size["config"], &size["vlm"], &processor, None).unwrap();
    let bytes = |name: &str| size["weights"][name].as_u64().unwrap();
    Network {
        shape: Shape { text, ..shape },
        tensors: bytes("large") + bytes("small"),
        small: bytes("small"),
        float: 2,
    }
}

/// Returns the configuration of a processor with these cameras.
fn processor(keys: &Value, edge: &Value) -> Value {
    let video = json!({"delta_indices": [0], "modality_keys": keys});
    json!({"image_target_size": [edge, edge], "modality_configs": {"new_embodiment": {"video": video}}})
}

/// All that a process reserves at its peak, in bytes.
struct Peak {
    peak: Value,
    measured: f64,
    estimated: f64,
}

/// Returns all peaks of a size, estimated for the number of tokens that `text` returns. They do not
/// include what CUDA takes for graphs itself.
fn compared(name: &str, text: impl Fn(&Value) -> u64) -> Vec<Peak> {
    let measured: Value = serde_json::from_str(MEASURED).unwrap();
    let size = &measured[name];
    let compared = |peak: &Value| {
        let number = |name: &str| peak[name].as_u64().unwrap();
        let (network, rows) = (network(size, number("cameras"), text(peak)), number("rows"));
        let graphs = match (peak["graphs"] == true, peak["all"] == true) {
            (false, _) => vec![],
            (true, false) => vec![rows],
            (true, true) => captured_graphs::batch_sizes(rows),
        };
        let graphs: f64 = graphs.into_iter().map(|rows| network.pass(rows)).sum();
        Peak {
            peak: peak.clone(),
            measured: number("reserved") as f64,
            estimated: (network.weights() + network.activations(rows)) as f64 + graphs,
        }
    };
    size["peaks"]
        .as_array()
        .unwrap()
        .iter()
        .map(compared)
        .collect()
}

fn own_text(peak: &Value) -> u64 {
    peak["text"].as_u64().unwrap()
}

impl Peak {
    /// Asserts that the estimate is not below what was measured, and not too far above.
    #[track_caller]
    fn assert_covered(&self, times: f64, mib: f64) {
        let [measured, estimated] = [self.measured, self.estimated].map(|bytes| bytes / MIB);
        let told = format!("{}: {measured:.0} MiB, {estimated:.0} estimated", self.peak);
        assert!(measured <= estimated, "{told}");
        assert!(estimated <= measured * times, "{told}");
        assert!(estimated <= measured + mib, "{told}");
    }
}

#[test]
fn the_released_size_never_takes_more_and_at_most_330_mib_less_than_estimated() {
    let mut peaks = compared("full", |_| TEXT_TOKENS);
    peaks.retain(|it| own_text(&it.peak) <= TEXT_TOKENS);
    // Three numbers of cameras, five of rows, with graphs and without.
    assert_eq!(peaks.len(), 30);
    peaks.iter().for_each(|it| it.assert_covered(1.05, 330.0));
}

#[test]
fn with_the_length_of_the_prompts_known_it_takes_at_most_300_mib_less() {
    let peaks = compared("full", own_text);
    let has_long = peaks.iter().any(|it| own_text(&it.peak) == 60);
    assert!(has_long, "longer prompts than are assumed");
    peaks.iter().for_each(|it| it.assert_covered(1.05, 300.0));
}

#[test]
fn a_small_network_never_takes_more_than_estimated_nor_less_than_two_thirds_of_it() {
    for (name, count) in [("160m", 30), ("tiny", 30), ("demo", 35)] {
        for text in [TEXT_TOKENS, 27] {
            let peaks = compared(name, |_| text);
            assert_eq!(peaks.len(), count);
            peaks.iter().for_each(|it| it.assert_covered(1.5, 330.0));
        }
    }
}

#[test]
fn graphs_are_counted_for_every_size_of_a_batch() {
    let measured: Value = serde_json::from_str(MEASURED).unwrap();
    let network = network(&measured["full"], 1, TEXT_TOKENS);
    assert_eq!(network.graphs(2), network.graph(1) + network.graph(2));
    let of_cuda = network.graph(1) - network.pass(1) as u64;
    assert_eq!(of_cuda >> 20, 16, "what CUDA takes itself is assumed");
}

#[test]
fn sizes_come_from_the_files_of_a_checkpoint() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fixture = root.join("tests/fixtures/gr00t/case_a_single");
    let shape = Shape::read(&fixture, None, None).unwrap();
    assert_eq!((shape.images, shape.patches), (1, 256));
    assert_eq!((shape.vision, shape.language, shape.layers), (24, 48, 4));
    assert_eq!(Shape::read(Path::new("/nowhere"), None, None), None);
}

#[test]
fn sizes_that_are_none_are_refused() {
    for config in [
        json!({"select_layer": u64::MAX}),
        json!({"select_layer": 60_000}),
        json!({"diffusion_model_cfg": {"num_layers": "many"}}),
    ] {
        let processor = processor(&json!(["x"]), &json!(256));
        assert_eq!(Shape::new(&config, &released_vlm(), &processor, None), None);
    }
}

#[test]
fn the_largest_sizes_that_are_believed_do_not_overflow() {
    let config = json!({"select_layer": MAX_COUNT, "num_inference_timesteps": MAX_COUNT});
    let mut vlm = released_vlm();
    vlm["text_config"]["hidden_size"] = MAX_WIDTH.into();
    vlm["text_config"]["head_dim"] = MAX_WIDTH.into();
    for name in ["hidden_size", "intermediate_size"] {
        vlm["vision_config"][name] = MAX_WIDTH.into();
    }
    let processor = processor(&json!(vec!["x"; 64]), &json!(4096));
    let network = Network {
        shape: Shape::new(&config, &vlm, &processor, None).unwrap(),
        tensors: 0,
        small: 0,
        float: 4,
    };
    assert!(network.activations(1 << 16) > network.activations(1));
}
