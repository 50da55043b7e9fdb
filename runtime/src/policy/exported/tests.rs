//! Tests with packages that `export_policy.py` writes of `tests/fixtures/exported/reaching.py`,
//! which takes a C++ compiler and the full torch of `setup.sh test`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use super::*;
use crate::env::{CameraSpec, EnvSpec, Frame, Observation};
use crate::policy::exported::package::{InputTensors, Rows};
use crate::policy::exported::policy::ExportedPolicy;
use crate::policy::graphs_testing as testing;
use crate::policy::tests::{chunks, env_spec, row};
use crate::policy::{Checkpoints, Chunk, Policy, PolicyRow, RowNoise};
use c10d::operators::normal;
use gr00t::graphs::Graphs;

/// Edge of the pictures.
const EDGE: u32 = 64;

/// Exports with batches of 1 to 4 rows, and of exactly 3.
const EXPORT: &str = "
import sys
from export_policy import export
from reaching import make
module, inputs = make()
print(export(module, inputs, sys.argv[1] + '/dynamic.pt2', max_batch=4))
print(export(module, inputs, sys.argv[1] + '/fixed.pt2', min_batch=3, max_batch=3))
";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the folder with the packages of [`EXPORT`], which are made once; `None`, with a message,
/// if this Python has no torch.
fn packages() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(exported).as_deref()
}

fn exported() -> Option<PathBuf> {
    let python = root().join(".venv/bin/python");
    let has_torch = Command::new(&python)
        .args(["-c", "import torch"])
        .output()
        .is_ok_and(|done| done.status.success());
    if !has_torch {
        eprintln!("skipped: no Python torch in .venv");
        return None;
    }
    let folder = tempfile::tempdir().unwrap().keep();
    let paths = [
        root().join("runtime/python"),
        root().join("tests/fixtures/exported"),
    ];
    let done = Command::new(&python)
        .args(["-c", EXPORT])
        .arg(&folder)
        .env("PYTHONPATH", std::env::join_paths(paths).unwrap())
        .env("TORCHINDUCTOR_CACHE_DIR", folder.join("cache"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    Some(folder)
}

fn env() -> EnvSpec {
    let camera = |name: &str| CameraSpec {
        name: name.to_owned(),
        height: EDGE,
        width: EDGE,
    };
    EnvSpec {
        cameras: vec![camera("front"), camera("wrist")],
        ..env_spec()
    }
}

fn settings(path: &Path, others: Value) -> ExportedSettings {
    let mut config = json!({ "model_path": path });
    let others = others.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(others);
    ExportedSettings::read(config.as_object().unwrap()).unwrap()
}

fn open(path: &Path) -> ExportedPolicy {
    let settings = settings(path, json!({"seed": 5}));
    ExportedPolicy::open(settings, &env(), &mut Checkpoints::new(Device::Cpu)).unwrap()
}

/// Returns why a package is refused for an environment and settings.
fn refusal(path: &Path, env: &EnvSpec, others: Value) -> String {
    let settings = settings(path, others);
    let opened = ExportedPolicy::open(settings, env, &mut Checkpoints::new(Device::Cpu));
    opened.err().unwrap().to_string()
}

/// Returns what environment `index` shows.
fn observation(index: usize) -> Observation {
    let frame = |level: usize| Frame {
        height: EDGE,
        width: EDGE,
        rgb: vec![level as u8; (EDGE * EDGE * 3) as usize].into(),
    };
    let mut observation = Observation::empty();
    let pictures = [("front", index), ("wrist", 100 + index)];
    observation.video = pictures
        .map(|(name, level)| (name.to_owned(), frame(level)))
        .into();
    let at = 0.01 * index as f32;
    let states = [
        ("eef_position", vec![at, 0.1, 0.5]),
        ("goal_position", vec![0.0, 0.4, 0.45]),
    ];
    observation.state = states
        .map(|(name, values)| (name.to_owned(), values))
        .into();
    observation.language = Arc::from("reach");
    observation
}

/// Returns the first chunk of `rows` environments, whose episodes have the seeds 100, 101, ….
fn first_chunks(policy: &mut ExportedPolicy, rows: std::ops::Range<usize>) -> Vec<Chunk> {
    let rows: Vec<PolicyRow> = rows.map(|index| inferred(index, 0)).collect();
    chunks(policy.act(&rows))
}

/// Returns the row of environment `index` for an inference of its episode.
fn inferred(index: usize, inference: u64) -> PolicyRow {
    PolicyRow {
        noise: RowNoise {
            episode_seed: 100 + index as u64,
            inference,
        },
        ..row(index, observation(index))
    }
}

/// Returns what `reaching.py` computes for environment `index` in its first inference.
fn wanted(index: usize) -> Chunk {
    let noise = normal(jobs::seed::noise(5, 100 + index as u64, 0), &[8, 7]);
    let noise = Vec::<f32>::try_from(noise.view(-1)).unwrap();
    let at = 0.01 * index as f32;
    let away = [0.0 - at, 0.4 - 0.1, 0.45 - 0.5f32].map(|away| (10.0 * away).clamp(-1.0, 1.0));
    let seen = (index as f32 + 50.0) / 255.0 * 0.1;
    let said = f32::from(b'r') / 128.0 * 0.1;
    let mean = [away.as_slice(), &[seen, said, 0.0, 0.0]].concat();
    let value = |(at, noise): (usize, &f32)| mean[at % 7] + 0.01 * noise;
    Chunk::new(7, noise.iter().enumerate().map(value).collect())
}

/// Compares chunks up to the rounding of float32: compiled code may fuse a product and a sum.
fn assert_close(found: &Chunk, wanted: &Chunk) {
    for step in 0..8 {
        let pairs = found
            .action(step)
            .unwrap()
            .iter()
            .zip(wanted.action(step).unwrap());
        for (found, wanted) in pairs {
            assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
        }
    }
}

#[test]
fn a_package_sees_pictures_states_tokens_and_the_noise_of_the_episode() {
    let Some(folder) = packages() else { return };
    let mut policy = open(&folder.join("dynamic.pt2"));
    let spec = policy.spec();
    assert_eq!((spec.action_horizon, spec.needs_video), (8, true));
    for (index, chunk) in first_chunks(&mut policy, 0..3).iter().enumerate() {
        assert_close(chunk, &wanted(index));
    }
}

#[test]
fn a_row_gets_the_same_chunk_in_any_batch() {
    let Some(folder) = packages() else { return };
    for name in ["dynamic.pt2", "fixed.pt2"] {
        let mut policy = open(&folder.join(name));
        // Seven rows are more than a call takes.
        let together = first_chunks(&mut policy, 0..7);
        let alone = (0..7).flat_map(|index| first_chunks(&mut policy, index..index + 1));
        assert_eq!(together, alone.collect::<Vec<_>>(), "{name}");
        assert_close(&together[6], &wanted(6));
    }
}

#[test]
fn each_inference_of_an_episode_has_its_own_noise() {
    let Some(folder) = packages() else { return };
    let mut policy = open(&folder.join("dynamic.pt2"));
    let first = first_chunks(&mut policy, 0..1);
    let second = chunks(policy.act(&[inferred(0, 1)]));
    assert_ne!(first, second);
    assert_eq!(first_chunks(&mut policy, 0..1), first, "the episode again");
}

#[test]
fn captured_batches_give_the_same_chunks() {
    let Some(folder) = packages() else { return };
    let mut policy = open(&folder.join("dynamic.pt2"));
    let plain = first_chunks(&mut policy, 0..3);
    let (graphs, log): (Graphs<Rows, InputTensors>, _) = testing::graphs(1, 10, None);
    policy.package.capture_with(graphs);
    policy.warm_up(3, 4);
    for _ in 0..3 {
        assert_eq!(first_chunks(&mut policy, 0..3), plain);
    }
    assert_eq!((log.captures.get(), log.replays.get()), (1, 4));
    assert_eq!(policy.facts().last().unwrap().1, json!(true));
}

#[test]
fn nothing_is_left_on_disk_once_a_package_has_run() {
    let Some(folder) = packages() else { return };
    let policy = open(&folder.join("dynamic.pt2"));
    assert_eq!(policy.package.folder(), None);
    let own = format!("rrun-package-{}-", std::process::id());
    let in_use = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = in_use.lines().find(|line| line.contains(&own)).unwrap();
    assert!(library.ends_with("(deleted)"), "{library}");
}

#[test]
fn inputs_of_another_shape_never_reach_compiled_code() {
    let Some(folder) = packages() else { return };
    let policy = open(&folder.join("dynamic.pt2"));
    let mut inputs = policy.inputs.zeros(2);
    inputs[1] = Tensor::zeros([2, 5], (Kind::Float, Device::Cpu));
    let err = policy.package.run(&inputs, 2).unwrap_err().to_string();
    assert_eq!(
        err,
        "libtorch: input 1 is Float [2, 5] on Cpu, expected Float [2, 6] on Cpu"
    );
    let err = policy.package.run(&policy.inputs.zeros(5), 5).unwrap_err();
    assert!(
        err.to_string()
            .ends_with("a batch of 5 rows, expected 1 to 4")
    );
}

#[test]
fn what_an_environment_lacks_is_named() {
    let Some(folder) = packages() else { return };
    let path = folder.join("dynamic.pt2");
    let mut small = env();
    small.cameras[1].height = 32;
    assert_eq!(
        refusal(&path, &small, json!({})),
        "policy `exported` needs camera wrist [64, 64]; environment `push` has front [64, 64], \
         wrist [32, 64]"
    );
    let mut blind = env();
    blind.state.retain(|(name, _)| name != "goal_position");
    let text = refusal(&path, &blind, json!({}));
    assert!(
        text.starts_with(
            "policy `exported` needs state goal_position [3]; environment `push` has joint_position [7]"
        ),
        "{text}"
    );
    let mut narrow = env();
    narrow.action.names.pop();
    let text = refusal(&path, &narrow, json!({}));
    assert!(text.contains("its actions have 7 components, and those of `push` 6: dx"));
}

#[test]
fn cameras_and_states_may_have_other_names() {
    let Some(folder) = packages() else { return };
    let path = folder.join("dynamic.pt2");
    let mut renamed = env();
    renamed.cameras[0].name = "agentview".to_owned();
    let names = json!({"cameras": {"front": "agentview"}});
    let opened = |others: Value| {
        let settings = settings(&path, others);
        ExportedPolicy::open(settings, &renamed, &mut Checkpoints::new(Device::Cpu))
    };
    assert!(opened(names).is_ok());
    assert!(refusal(&path, &renamed, json!({})).contains("needs camera front [64, 64]"),);
    assert_eq!(
        refusal(&path, &renamed, json!({"cameras": {"back": "agentview"}})),
        "`policy_config_dict.cameras.back` is `agentview`, but the package reads front, wrist"
    );
    assert!(
        refusal(&path, &env(), json!({"tokenizer_path": path}))
            .ends_with("but the package reads no tokens of a tokenizer")
    );
}

#[test]
fn a_package_of_a_gpu_is_refused_on_a_cpu() {
    use jobs::exported::TorchKeys;
    use jobs::exported::testing::{DESCRIPTION, keys, package};

    let cuda = TorchKeys {
        device: "cuda".to_owned(),
        compute_capability: Some(90),
        machine: std::env::consts::ARCH.to_owned(),
        ..keys()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.pt2");
    std::fs::write(&path, package(&cuda, DESCRIPTION)).unwrap();
    let text = refusal(&path, &env(), json!({}));
    assert!(
        text.ends_with(
            "it was compiled for cuda, but the device of the policy is cpu; export it with \
             `--device cpu`"
        ),
        "{text}"
    );
}

#[test]
fn a_library_that_cannot_be_loaded_is_an_error_with_the_reason() {
    use jobs::exported::TorchKeys;
    use jobs::exported::testing::{DESCRIPTION, keys, package};

    let any_cpu = TorchKeys {
        machine: std::env::consts::ARCH.to_owned(),
        ..keys()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.pt2");
    std::fs::write(&path, package(&any_cpu, DESCRIPTION)).unwrap();
    let text = refusal(&path, &env(), json!({}));
    assert!(
        text.contains("policy.pt2`: cannot load it: ") && text.contains("file too short"),
        "{text}"
    );
}
