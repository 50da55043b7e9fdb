//! Tests with packages that `export_policy.py` writes of `tests/fixtures/exported/reaching.py`,
//! which takes a C++ compiler and the full torch of `setup.sh test`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use rig::PYTHON;
use rig::need::{Need, need};
use rig::wait::until;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use crate::env::{EnvSpec, Observation};
use crate::policy::exported::PackagedPolicy;
use crate::policy::exported::package::LoadedPackage;
use crate::policy::graphs_testing as testing;
use crate::policy::tests::{chunks, env_with, frame, row};
use crate::policy::{Checkpoints, Chunk, Lifeline, Policy, PolicyRow};
use jobs::policies::Exported;
use torchlib::operators::normal;

const SIZE: [u32; 2] = [64, 64];

/// Exports with batches of 1 to 4 rows, and of exactly 3.
const EXPORT: &str = "
import sys
from export_policy import export
from reaching import make
module, inputs = make()
print(export(module, inputs, sys.argv[1] + '/dynamic.pt2', max_batch=4))
print(export(module, inputs, sys.argv[1] + '/fixed.pt2', min_batch=3, max_batch=3))
";

/// Returns the folder with the packages of [`EXPORT`], which are made once; `None` without torch.
fn packages() -> Option<&'static Path> {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(exported);
    need(Need::Torch).then(|| FOLDER.as_path())
}

/// Exports the packages, which takes a minute, unless those of the same sources and the same torch
/// lie beside this program.
fn exported() -> PathBuf {
    let told = "import torch; print(torch.__version__)";
    let version = Command::new(PYTHON).args(["-c", told]).output().unwrap();
    let paths = ["runtime/python", "tests/fixtures/exported"].map(|path| rig::root().join(path));
    let sources = ["export_policy.py", "reaching.py"];
    let mut key = DefaultHasher::new();
    (EXPORT, version.stdout).hash(&mut key);
    for (path, source) in paths.iter().zip(sources) {
        std::fs::read(path.join(source)).unwrap().hash(&mut key);
    }
    let beside = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    let kept = beside.join(format!("packages-{:x}", key.finish()));
    if kept.exists() {
        return kept;
    }
    let folder = tempfile::tempdir_in(&beside).unwrap();
    let done = Command::new(PYTHON)
        .args(["-c", EXPORT])
        .arg(folder.path())
        .env("PYTHONPATH", std::env::join_paths(paths).unwrap())
        .env("TORCHINDUCTOR_CACHE_DIR", folder.path().join("cache"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    std::fs::remove_dir_all(folder.path().join("cache")).unwrap();
    // Another test program may have been faster.
    std::fs::rename(folder.path(), &kept).ok();
    kept
}

fn env() -> EnvSpec {
    env_with(&["front", "wrist"], SIZE)
}

fn settings(path: &Path, others: Value) -> Exported {
    let mut config = json!({ "model_path": path });
    let others = others.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(others);
    jobs::policies::read(config.as_object().unwrap()).unwrap()
}

fn open(path: &Path) -> PackagedPolicy<LoadedPackage> {
    let settings = settings(path, json!({"seed": 5}));
    PackagedPolicy::open(
        &settings,
        &env(),
        &mut Checkpoints::new(Device::Cpu, Lifeline::alone()),
    )
    .unwrap()
}

/// Returns why a package is refused for an environment and settings.
fn refusal(path: &Path, env: &EnvSpec, others: Value) -> String {
    let settings = settings(path, others);
    let opened = PackagedPolicy::open(
        &settings,
        env,
        &mut Checkpoints::new(Device::Cpu, Lifeline::alone()),
    );
    opened.err().unwrap().to_string()
}

/// Returns what environment `index` shows.
fn observation(index: usize) -> Observation {
    let mut observation = Observation::default();
    let pictures = [("front", index), ("wrist", 100 + index)];
    observation.video = pictures
        .map(|(name, level)| (name.to_owned(), frame(SIZE, level as u8)))
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
fn first_chunks(
    policy: &mut PackagedPolicy<LoadedPackage>,
    rows: std::ops::Range<usize>,
) -> Vec<Chunk> {
    let rows: Vec<PolicyRow> = rows.map(|index| inferred(index, 0)).collect();
    chunks(policy.act(&rows))
}

/// Returns the row of environment `index` for an inference of its episode.
fn inferred(index: usize, inference: u64) -> PolicyRow {
    PolicyRow {
        seed: 100 + index as u64,
        inference,
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
fn a_package_sees_its_inputs_and_a_row_gets_the_same_chunk_in_any_batch() {
    let Some(folder) = packages() else { return };
    for name in ["dynamic.pt2", "fixed.pt2"] {
        let mut policy = open(&folder.join(name));
        let facts = policy.facts();
        assert_eq!((facts.horizon, facts.needs_video), (8, true));
        // Seven rows are more than a call takes.
        let together = first_chunks(&mut policy, 0..7);
        let alone = (0..7).flat_map(|index| first_chunks(&mut policy, index..index + 1));
        assert_eq!(together, alone.collect::<Vec<_>>(), "{name}");
        for (index, chunk) in together.iter().enumerate() {
            assert_close(chunk, &wanted(index));
        }
        let second = chunks(policy.act(&[inferred(0, 1)]));
        assert_ne!(second[0], together[0], "each inference has its own noise");
    }
}

#[test]
fn captured_batches_give_the_same_chunks() {
    let Some(folder) = packages() else { return };
    let mut policy = open(&folder.join("dynamic.pt2"));
    let plain = first_chunks(&mut policy, 0..3);
    let captures = policy.facts().reported.pop();
    assert_eq!(captures, Some(("cuda_graphs", json!(false))));
    let (graphs, log) = testing::graphs(1, 10, None);
    *policy.runner.graphs.borrow_mut() = graphs;
    policy.warm_up(3, 4);
    for _ in 0..3 {
        assert_eq!(first_chunks(&mut policy, 0..3), plain);
    }
    assert_eq!((log.captures.get(), log.replays.get()), (1, 4));
    assert!(policy.captures());
}

#[test]
fn nothing_is_left_on_disk_once_a_package_has_run() {
    let Some(folder) = packages() else { return };
    let policy = open(&folder.join("dynamic.pt2"));
    assert!(policy.network.folder.is_none());
    let own = format!("rrun-package-{}-", std::process::id());
    let is_left = |line: &str| line.contains(&own) && !line.ends_with("(deleted)");
    // A test beside this one may be loading a package.
    until("only deleted libraries", || {
        let in_use = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(in_use.contains(&own), "{in_use}");
        !in_use.lines().any(is_left)
    });
}

#[test]
fn inputs_of_another_shape_never_reach_compiled_code() {
    let Some(folder) = packages() else { return };
    let policy = open(&folder.join("dynamic.pt2"));
    let mut inputs = policy.inputs.zeros(2);
    inputs[1] = Tensor::zeros([2, 5], (Kind::Float, Device::Cpu));
    let err = policy.run(&inputs, 2).unwrap_err().to_string();
    let wanted = "libtorch: input 1 is Float [2, 5] on Cpu, expected Float [2, 6] on Cpu";
    assert_eq!(err, wanted);
    let err = policy.run(&policy.inputs.zeros(5), 5).unwrap_err();
    let err = err.to_string();
    assert!(err.ends_with("a batch of 5 rows, expected 1 to 4"), "{err}");
}

#[test]
fn what_an_environment_lacks_is_named() {
    let Some(folder) = packages() else { return };
    let path = folder.join("dynamic.pt2");
    let [mut small, mut blind, mut narrow] = [(); 3].map(|()| env());
    small.cameras[1].height = 32;
    blind.state.retain(|(name, _)| name != "goal_position");
    narrow.action.names.pop();
    for (env, reason) in [
        (
            small,
            "policy `exported` needs camera wrist [64, 64]; environment `push` has cameras front [64, 64], wrist [32, 64]; ",
        ),
        (
            blind,
            "policy `exported` needs state goal_position [3]; environment `push` has cameras front [64, 64], wrist [64, 64]; states joint",
        ),
        (
            narrow,
            "policy `exported` needs an action of 7 numbers; environment `push` has one of 6 (dx, ",
        ),
    ] {
        let text = refusal(&path, &env, json!({}));
        assert!(text.contains(reason), "{text}");
    }
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
        PackagedPolicy::open(
            &settings,
            &renamed,
            &mut Checkpoints::new(Device::Cpu, Lifeline::alone()),
        )
    };
    assert!(opened(names).is_ok());
    for (others, reason) in [
        (json!({}), "needs camera front [64, 64]"),
        (
            json!({"cameras": {"back": "agentview"}}),
            "`policy_config_dict.cameras.back` is `agentview`, but the package reads front, wrist",
        ),
        (
            json!({"tokenizer_path": path, "cameras": {"front": "agentview"}}),
            "but the package reads no tokens of a tokenizer",
        ),
    ] {
        let text = refusal(&path, &renamed, others);
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn a_package_of_a_gpu_or_one_that_cannot_be_loaded_is_refused_with_the_reason() {
    use jobs::exported::TorchKeys;
    use jobs::samples::{DESCRIPTION, keys, package};

    let own = || TorchKeys {
        machine: std::env::consts::ARCH.to_owned(),
        ..keys()
    };
    let of_gpu = TorchKeys {
        device: "cuda".to_owned(),
        compute_capability: Some(90),
        ..own()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.pt2");
    let other = "it was compiled for cuda, but the device of the policy is cpu; export it with `--device cpu`";
    for (keys, reason) in [
        (own(), "policy.pt2`: cannot load it: "),
        (own(), "file too short"),
        (of_gpu, other),
    ] {
        std::fs::write(&path, package(&keys, DESCRIPTION)).unwrap();
        let text = refusal(&path, &env(), json!({}));
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn a_file_that_is_no_tokenizer_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    for text in ["no tokenizer", "{}", r#"{"model": 3}"#] {
        std::fs::write(&path, text).unwrap();
        let refusal = crate::policy::exported::inputs::Tokens::open(Some(&path), 4)
            .err()
            .unwrap();
        let wanted = format!("`{}`: ", path.display());
        assert!(refusal.to_string().starts_with(&wanted), "{refusal}");
    }
}
