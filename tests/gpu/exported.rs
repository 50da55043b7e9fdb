//! Tests of compiled packages on a GPU: which are refused there. Packages of code for a GPU can be
//! compiled only where there is one.

use jobs::exported::TorchKeys;
use jobs::interface::{ActionSpec, Interface};
use jobs::samples::{DESCRIPTION, keys, package};
use runtime::env::EnvSpec;
use runtime::policy::{Checkpoints, Lifeline, make};
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

/// Returns why a package with these keys is refused on the card.
fn refusal(card: &Card, keys: &TorchKeys) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.pt2");
    std::fs::write(&path, package(keys, DESCRIPTION)).unwrap();
    let config = json!({ "model_path": path });
    let mut models = Checkpoints::new(card.device(), Lifeline::alone());
    let config = config.as_object().unwrap();
    let made = make(
        "exported",
        config,
        Some(&env()),
        &mut models,
        &Lifeline::alone(),
    );
    made.err().unwrap().to_string()
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
