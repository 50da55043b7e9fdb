//! Estimates the memory of a policy on the GPU of its rank: weights, activations of a batch,
//! captured graphs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jobs::bytes::ByteSize;
use jobs::captured_graphs;
use jobs::job::Job;
use safetensors::tensor::TensorInfo;
use serde_json::{Map, Value};

use crate::amount::{MemoryAmount, Need};
use crate::checkpoint;
use crate::gr00t::{Network, SMALL, Shape};
use crate::measured::Measured;
use jobs::policies::{self, DECLARED_MEMORY, MemoryRule, PolicyType};

/// Working memory in addition to the weights, as a share of them, for a policy of which only the
/// file sizes are known. OpenVLA has 14 GB of bfloat16 weights and takes 14 to 16 GB (s000,
/// "Per-Component Memory Usage").
const WORKING_ROOM: f64 = 0.15;

/// What is known about the memory of a job's policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PolicyMemory {
    /// It needs no GPU of this rank: a script, a replay, or a remote server.
    Elsewhere,
    /// GR00T N1.7: the weights are known from the headers, the rest is computed from its sizes.
    Gr00t {
        /// Computes the memory of the network.
        network: Network,
        /// Whether it captures CUDA graphs.
        captures: bool,
    },
    /// A checkpoint of which only the size of the files is known, in bytes.
    Files(u64),
    /// What the job declares or an earlier run has measured, in bytes.
    Declared(u64),
    /// There is a checkpoint or code, but nothing is known about it.
    Unknown,
}

impl PolicyMemory {
    /// Examines the files that a job names; of a policy of which only these are known, the memory is
    /// that of an earlier run.
    pub(super) fn of(job: &Job, measured: &Measured) -> Self {
        let Some(policy) = PolicyType::of(&job.policy_type) else {
            return Self::Elsewhere;
        };
        let given = policies::given(policy, &job.policy_config);
        let path = text(&given, "model_path").map(PathBuf::from);
        let files = |path: &Path| checkpoint::file_bytes(path).map(Self::Files);
        let found = match (policy.row().memory, path) {
            (MemoryRule::Nothing, _) => return Self::Elsewhere,
            (MemoryRule::Gr00t, Some(path)) => Self::gr00t(&path, &given).or_else(|| files(&path)),
            (MemoryRule::Files, Some(path)) => files(&path),
            (MemoryRule::Declared, _) => {
                let gib = given.get(DECLARED_MEMORY).and_then(Value::as_f64);
                let size = gib.and_then(ByteSize::of_gib);
                size.map(|ByteSize(bytes)| Self::Declared(bytes))
            }
            (MemoryRule::Gr00t | MemoryRule::Files, None) => None,
        };
        match found {
            Some(found @ (Self::Gr00t { .. } | Self::Declared(_))) => found,
            found => {
                let measured = measured.policy(job).map(Self::Declared);
                measured.or(found).unwrap_or(Self::Unknown)
            }
        }
    }

    fn gr00t(folder: &Path, config: &Map<String, Value>) -> Option<Self> {
        let vlm = text(config, "vlm_path").map(Path::new);
        let shape = Shape::read(folder, vlm, text(config, "embodiment_tag"))?;
        let is_wide = text(config, "dtype") == Some("float32");
        let float = if is_wide { 4 } else { 2 };
        let tensors = checkpoint::tensors(folder)?;
        let sizes = || used(&tensors, shape.layers).map(|tensor| checkpoint::bytes(tensor, float));
        let network = Network {
            shape,
            tensors: sizes().sum(),
            small: sizes().filter(|bytes| *bytes <= SMALL).sum(),
            float,
        };
        let captures = config.get("cuda_graphs").and_then(Value::as_bool);
        let captures = captures.unwrap_or(true);
        Some(Self::Gr00t { network, captures })
    }

    /// Returns the memory for inferences of at most `rows` rows on a GPU with `total` bytes.
    pub(super) fn need(&self, gpu: usize, rows: u64, total: Option<u64>) -> Need {
        let nothing = Need::none(gpu);
        match self {
            Self::Elsewhere => nothing,
            Self::Gr00t { network, captures } => {
                let graphs = if *captures {
                    graphs(network, rows, total)
                } else {
                    0
                };
                Need {
                    weights: MemoryAmount::certain(network.weights()),
                    activations: MemoryAmount::estimated(network.activations(rows)),
                    graphs: MemoryAmount::estimated(graphs),
                    ..nothing
                }
            }
            Self::Files(bytes) => Need {
                weights: MemoryAmount::estimated(*bytes),
                activations: MemoryAmount::estimated((*bytes as f64 * WORKING_ROOM) as u64),
                ..nothing
            },
            Self::Declared(bytes) => Need {
                weights: MemoryAmount::certain(*bytes),
                ..nothing
            },
            Self::Unknown => Need {
                weights: MemoryAmount::UNKNOWN,
                ..nothing
            },
        }
    }

    /// Returns whether the known memory depends on the number of rows.
    pub(super) fn depends_on_rows(&self) -> bool {
        matches!(self, Self::Gr00t { .. })
    }
}

/// Returns the bytes of the graphs of all batch sizes up to `rows`, limited by what may be kept. It
/// is at least the largest graph, which is held until it is known to be too large.
fn graphs(network: &Network, rows: u64, total: Option<u64>) -> u64 {
    let cap = total.map_or(captured_graphs::MOST_BYTES, captured_graphs::max_bytes);
    network.graphs(rows).min(cap).max(network.graph(rows))
}

/// Returns the tensors that are loaded: all except the language-model head and the decoder layers
/// above those that are used.
fn used(tensors: &BTreeMap<String, TensorInfo>, layers: u64) -> impl Iterator<Item = &TensorInfo> {
    let has_embedding = tensors
        .keys()
        .any(|name| name.ends_with("language_model.embed_tokens.weight"));
    let is_used = move |name: &str| {
        let layer = name
            .split_once("language_model.layers.")
            .and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
        !(has_embedding && name.ends_with("lm_head.weight"))
            && layer.is_none_or(|layer: u64| layer < layers)
    };
    tensors
        .iter()
        .filter(move |(name, _)| is_used(name))
        .map(|(_, tensor)| tensor)
}

fn text<'a>(given: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    given.get(name)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/gr00t");

    fn policy(name: &str, config: Value) -> PolicyMemory {
        let fields = json!({"policy_type": name, "policy_config_dict": config});
        PolicyMemory::of(&jobs::samples::job(fields), &Measured::default())
    }

    fn weights(policy: &PolicyMemory) -> u64 {
        policy.need(0, 1, None).weights.certain.0
    }

    #[test]
    fn graphs_get_two_gibibytes_or_a_sixteenth_of_the_card() {
        let most = [141 << 30, 24 << 30, 0].map(captured_graphs::max_bytes);
        assert_eq!(most, [2 << 30, 3 << 29, 0]);
    }

    #[test]
    fn a_python_policy_takes_what_its_job_declares() {
        let declared = json!({"policy": "mine.py:make", "policy_memory_gb": 1.5});
        let declared = policy("python", declared);
        assert_eq!(declared, PolicyMemory::Declared(3 << 29));
        assert_eq!(weights(&declared), 3 << 29);
        let unknown = policy("python", json!({"policy": "mine.py:make"}));
        assert!(unknown.need(0, 1, None).weights.has_unknown);
    }

    #[test]
    fn weights_are_counted_by_the_headers_in_the_type_of_the_arithmetic() {
        let folder = format!("{FIXTURES}/case_a_single");
        let file = std::fs::metadata(format!("{folder}/model.safetensors"));
        let file = file.unwrap().len();
        let wide = policy("gr00t", json!({"model_path": folder, "dtype": "float32"}));
        let narrow = policy("gr00t", json!({"model_path": folder}));
        let is_nearly_all = (file * 8 / 10..=file).contains(&weights(&wide));
        assert!(is_nearly_all, "{} of {file}", weights(&wide));
        assert_eq!(weights(&narrow) * 2, weights(&wide));
    }

    #[test]
    fn the_head_for_words_and_layers_that_are_cut_off_do_not_count() {
        let tensor =
            |name: &str| json!({name: {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]}});
        let dir = tempfile::tempdir().unwrap();
        let names = [
            "lm_head.weight",
            "language_model.embed_tokens.weight",
            "language_model.layers.11.x",
            "language_model.layers.12.x",
        ];
        let files = names
            .iter()
            .map(|name| ((*name).to_owned(), format!("{name}.st").into()));
        let map: Map<String, Value> = files.collect();
        for name in names {
            let json = tensor(name).to_string();
            let bytes = [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat();
            std::fs::write(dir.path().join(format!("{name}.st")), bytes).unwrap();
        }
        let index = json!({"weight_map": map}).to_string();
        std::fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
        let found = used(&checkpoint::tensors(dir.path()).unwrap(), 12).count();
        assert_eq!(found, 2);
    }

    #[test]
    fn a_checkpoint_may_be_named_in_arenas_yaml() {
        let dir = tempfile::tempdir().unwrap();
        let yaml = dir.path().join("policy.yaml");
        let text =
            format!("model_path: {FIXTURES}/case_a_single\nembodiment_tag: new_embodiment\n");
        std::fs::write(&yaml, text).unwrap();
        assert!(weights(&policy("gr00t", json!({"policy_config_yaml_path": yaml}))) > 0);
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_what_runs_elsewhere_is_nothing() {
        let found = policy("gr00t", json!({"model_path": "/nowhere"}));
        assert_eq!(found, PolicyMemory::Unknown);
        assert_eq!(policy("gr00t", json!({})), PolicyMemory::Unknown);
        assert_eq!(policy("pi0_remote", json!({})), PolicyMemory::Elsewhere);
        assert!(found.need(0, 1, None).sum().has_unknown);
    }
}
