//! Tests of compiled packages on a GPU: which are refused there, and that their passes are
//! captured. Packages of code for a GPU can be compiled only where there is one.

use std::path::Path;
use std::process::Command;

use jobs::exported::TorchKeys;
use jobs::interface::{ActionSpec, Interface};
use jobs::samples::{DESCRIPTION, keys, package};
use rig::PYTHON;
use runtime::env::EnvSpec;
use runtime::policy::{Checkpoints, Lifeline, Made, PolicyError, make};
use serde_json::json;

use crate::gpu::card::{Card, card};

fn env() -> EnvSpec {
    EnvSpec::seen(Interface {
        name: "reach".to_owned(),
        state: vec![("eef_position".to_owned(), 3)],
        cameras: Vec::new(),
        action: ActionSpec {
            names: ["x"; 7].map(str::to_owned).to_vec(),
            low: vec![-1.0; 7],
            high: vec![1.0; 7],
            grid: Vec::new(),
        },
        control_hz: 20,
        max_episode_steps: 200,
        language: String::new(),
    })
}

/// Exports a policy whose actions are its state, for the GPU of this process.
const EXPORT: &str = "
import sys, torch
from export_policy import export, state
class Still(torch.nn.Module):
    def forward(self, state):
        return state.repeat(1, 3)[:, None, :7].repeat(1, 8, 1)
export(Still(), [state({'eef_position': 3})], sys.argv[1], device='cuda')
";

/// Makes the policy of a package on the card.
fn open(card: &Card, path: &Path) -> Result<Made, PolicyError> {
    let config = json!({ "model_path": path });
    let mut models = Checkpoints::new(card.device(), Lifeline::alone());
    let config = config.as_object().unwrap();
    make(
        "exported",
        config,
        Some(&env()),
        &mut models,
        &Lifeline::alone(),
    )
}

/// Returns why a package with these keys is refused on the card.
fn refusal(card: &Card, keys: &TorchKeys) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.pt2");
    std::fs::write(&path, package(keys, DESCRIPTION)).unwrap();
    open(card, &path).err().unwrap().to_string()
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_the_journal_says_that_the_passes_of_a_package_are_captured() {
    let Some(card) = card() else { return };
    let python = |words: &[&str]| {
        let mut python = Command::new(PYTHON);
        python.arg("-c").args(words);
        python.env("CUDA_VISIBLE_DEVICES", card.index.to_string());
        python.env("PYTHONPATH", rig::root().join("runtime/python"));
        python.output()
    };
    let asked = python(&["import torch; torch.zeros(1, device='cuda')"]);
    if !asked.is_ok_and(|asked| asked.status.success()) {
        println!("skipped: the torch of {PYTHON} has no GPU");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.pt2");
    let done = python(&[EXPORT, path.to_str().unwrap()]).unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let made = open(&card, &path).unwrap();
    let reported = &made.facts.reported;
    assert_eq!(reported.last(), Some(&("cuda_graphs", json!(true))));
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_package_of_another_device_or_another_card_is_refused() {
    let Some(card) = card() else { return };
    let any_cpu = TorchKeys {
        machine: std::env::consts::ARCH.to_owned(),
        ..keys()
    };
    let text = refusal(&card, &any_cpu);
    let wanted = format!(
        "it was compiled for cpu, but the device of the policy is cuda:{}; export it with \
         `--device cuda`",
        card.index
    );
    assert!(text.ends_with(&wanted), "{text}");
    let other = TorchKeys {
        device: "cuda".to_owned(),
        compute_capability: Some(10),
        ..any_cpu
    };
    let text = refusal(&card, &other);
    assert!(
        text.contains("compiled for GPUs of compute capability 10, but GPU "),
        "{text}"
    );
    assert_eq!(card.cuda.ooms(card.index).unwrap(), 0);
}
