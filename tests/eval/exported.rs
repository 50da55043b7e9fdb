//! Tests of jobs with a compiled package: the example of `docs/exported_policy.md`, exported by the
//! command that is in the page.

use std::process::Command;

use rig::need::{Need, need};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::eval::command::Eval;
use crate::eval::given::{python, root, told};

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

/// Returns the block of the page that begins with this fence.
fn block(fence: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/exported_policy.md")).unwrap();
    let (_, rest) = page.split_once(&format!("```{fence}\n")).unwrap();
    let (block, _) = rest.split_once("```\n").unwrap();
    block.to_owned()
}

/// Makes a folder with `my_policy.py` and `policy.pt2`.
fn exported() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
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
    let mut export = Command::new(python());
    export
        .args([
            "-m",
            "rrun.export_policy",
            "my_policy.py:make",
            "policy.pt2",
        ])
        .env("TORCHINDUCTOR_CACHE_DIR", folder.join("cache"))
        .current_dir(folder);
    let (code, text) = told(&mut export);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("policy.pt2: ") && text.contains("the largest difference from the module"),
        "{text}"
    );
    dir
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
    let words = ["--export-mode=none", "--shard", "episodes"];
    Eval::new(&[job]).nproc(ranks).words(&words)
}

#[test]
fn a_package_does_what_its_module_does_with_any_number_of_environments_and_ranks() {
    if !need(Need::Torch) {
        return;
    }
    let dir = exported();
    let folder = dir.path();
    let package = json!({"model_path": folder.join("policy.pt2")});
    let alone = eval(job("exported", package.clone(), 1), 1).finished();
    assert_eq!(alone.report().overall.successes, 6);
    let together = eval(job("exported", package, 3), 2).finished();
    assert_eq!(together.outcomes(), alone.outcomes(), "to the bit");

    let config = json!({
        "policy": format!("{}:Eager", folder.join("eager.py").display()),
        "python": root().join(".venv"),
    });
    let eager = eval(job("python", config, 1), 1).finished();
    let ends = |eval: &Eval| {
        let episodes = eval.episodes().into_iter();
        let ends = episodes.map(|episode| (episode.episode, episode.success, episode.length));
        ends.collect::<Vec<_>>()
    };
    assert_eq!(ends(&alone), ends(&eager));

    let files = alone.policy_files();
    assert!(files.path.ends_with("policy.pt2"), "{files:?}");
}
