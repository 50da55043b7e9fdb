//! Tests of jobs with a compiled package: the example of `docs/exported_policy.md`, exported by the
//! command that is in the page.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use jobs::journal::Line;
use serde_json::{Value, json};

use crate::eval::command::Eval;

/// A Python policy that runs the module of the page in eager PyTorch.
const EAGER: &str = r#"
import torch
from my_policy import make as module

class Eager:
    spec = {"action_horizon": 8}
    tensors = True
    def __init__(self, spec, device, seed):
        self.module, _ = module()
    def act(self, observations, episodes):
        pictures = [observations["pictures"][name] for name in ("front", "wrist")]
        images = torch.stack(pictures, 1).permute(0, 1, 4, 2, 3).contiguous()
        state = torch.cat([observations["state"][name] for name in ("eef_position", "goal_position")], 1)
        with torch.inference_mode():
            return self.module(images, state)
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

/// Returns the block of the page that begins with this fence.
fn block(fence: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/exported_policy.md")).unwrap();
    let (_, rest) = page.split_once(&format!("```{fence}\n")).unwrap();
    let (block, _) = rest.split_once("```\n").unwrap();
    block.to_owned()
}

/// Returns the folder with `my_policy.py` and `policy.pt2`, which are made once; `None`, with a
/// message, if this Python has no torch.
fn folder() -> Option<&'static Path> {
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
    std::fs::write(folder.join("my_policy.py"), block("python")).unwrap();
    // The package as the wheel has it.
    let package = folder.join("rrun");
    std::fs::create_dir(&package).unwrap();
    for file in [
        "deploy/wheel/rrun/__init__.py",
        "runtime/python/export_policy.py",
    ] {
        let file = root().join(file);
        std::fs::copy(&file, package.join(file.file_name().unwrap())).unwrap();
    }
    let eager = format!(
        "import sys; sys.path.insert(0, {:?})\n{EAGER}",
        folder.display().to_string()
    );
    std::fs::write(folder.join("eager.py"), eager).unwrap();
    let done = Command::new(&python)
        .args([
            "-m",
            "rrun.export_policy",
            "my_policy.py:make",
            "policy.pt2",
        ])
        .env("TORCHINDUCTOR_CACHE_DIR", folder.join("cache"))
        .current_dir(&folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    let told = String::from_utf8_lossy(&done.stdout);
    assert!(
        told.contains("policy.pt2: ") && told.contains("the largest difference from the module"),
        "{told}"
    );
    Some(folder)
}

/// Returns the job of the page with another policy and another number of environments.
fn job(policy: &str, config: Value, num_envs: u64) -> Value {
    let document: Value = serde_json::from_str(&block("json")).unwrap();
    let mut job = document["jobs"][0].clone();
    job["policy_type"] = policy.into();
    let of_page = job["policy_config_dict"]["action_chunk_length"].take();
    job["policy_config_dict"] = config;
    job["policy_config_dict"]["action_chunk_length"] = of_page;
    job["arena_env_args"]["num_envs"] = num_envs.into();
    job["num_episodes"] = 6.into();
    job
}

fn eval(job: Value, ranks: usize) -> Eval {
    let words = ["--no-dataset", "--shard", "episodes"];
    Eval::new(&[job]).nproc(ranks).words(&words)
}

/// Returns success and length of each episode, in order.
fn outcomes(eval: &Eval) -> Vec<(u64, Option<bool>, u64)> {
    let episodes = eval.episodes();
    let mut outcomes: Vec<_> = episodes
        .iter()
        .map(|episode| (episode.episode, episode.success, episode.length))
        .collect();
    outcomes.sort();
    outcomes
}

#[test]
fn a_package_does_what_its_module_does_with_any_number_of_environments_and_ranks() {
    let Some(folder) = folder() else { return };
    let package = json!({"model_path": folder.join("policy.pt2")});
    let alone = eval(job("exported", package.clone(), 1), 1);
    alone.run().succeeds();
    assert_eq!(alone.report().overall.successes, 6);
    let together = eval(job("exported", package, 3), 2);
    together.run().succeeds();
    let returns = |eval: &Eval| {
        let mut returns: Vec<_> = eval
            .episodes()
            .iter()
            .map(|episode| (episode.episode, episode.return_.to_bits()))
            .collect();
        returns.sort();
        returns
    };
    assert_eq!(outcomes(&together), outcomes(&alone));
    assert_eq!(returns(&together), returns(&alone), "to the bit");

    let config = json!({
        "policy": format!("{}:Eager", folder.join("eager.py").display()),
        "python": root().join(".venv"),
    });
    let eager = eval(job("python", config, 1), 1);
    eager.run().succeeds();
    assert_eq!(outcomes(&alone), outcomes(&eager));

    let files = alone.journal().into_iter().find_map(|line| match line {
        Line::PolicyFiles(files) => Some(files),
        _ => None,
    });
    let files = files.expect("the journal has the checksum of the package");
    assert!(files.path.ends_with("policy.pt2"), "{files:?}");
}

#[test]
fn a_package_that_does_not_fit_is_refused_before_the_first_step() {
    let Some(folder) = folder() else { return };
    let package = json!({"model_path": folder.join("policy.pt2")});
    let mut large = job("exported", package, 1);
    large["arena_env_args"]["camera_height"] = 96.into();
    let eval = eval(large, 1);
    eval.run().fails_with(1).stderr_has(
        "policy `exported` needs camera front [64, 64], wrist [64, 64]; environment `reach` has \
         front [96, 64], wrist [96, 64]",
    );
    assert_eq!(eval.journaled(), 0);
}

#[test]
fn a_module_is_refused_as_a_package_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.pt2");
    std::fs::write(&path, "a TorchScript module").unwrap();
    let eval = eval(job("exported", json!({"model_path": path}), 1), 1);
    eval.run()
        .fails_with(1)
        .stderr_has("it is not a `.pt2` package: it does not end as a zip file does");
    assert!(!eval.folder().root().exists());
}
