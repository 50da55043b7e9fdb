//! Tests of an evaluation with the demo's checkpoint on the GPU.

use serde_json::{Value, json};

use jobs::episode::Episode;
use rig::need::{Need, need};
use tch::Device;
use torchlib::cuda;

use crate::gpu::card::{demo_policy, device};
use crate::gpu::command::Eval;

fn job(name: &str) -> Value {
    json!({
        "name": name,
        "arena_env_args": {"environment": "reach", "num_envs": 4, "enable_cameras": true},
        "policy_type": "gr00t",
        "policy_config_dict": {"model_path": demo_policy(), "action_chunk_length": 6},
        "num_episodes": 8,
        "seed": 1,
    })
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_an_evaluation_runs_on_the_card_and_its_report_names_it() {
    if !need(Need::Egl) {
        return;
    }
    let device = device();
    let eval = Eval::new(&[job("reach")]).nproc(1).with_video();
    let eval = eval.words(&["--policy-device", &word(device)]);
    eval.run().succeeds();
    let (episodes, gpus) = (eval.episodes(), eval.report().run.gpus);
    let failed = episodes.iter().filter(|episode| episode.error.is_some());
    assert_eq!((episodes.len(), failed.count()), (8, 0));
    let solved = episodes
        .iter()
        .filter(|it| it.success == Some(true))
        .count();
    println!("{solved} of 8 episodes solved on {gpus:?}");
    assert!(
        solved >= 5,
        "{solved} of 8 solved, on a CPU it is nearly all"
    );
    let named: Vec<_> = gpus.into_iter().map(|it| it.gpu.name).collect();
    let driver = |index| cuda::load().unwrap().device(index).unwrap().name;
    let wanted: Vec<_> = match device {
        Device::Cuda(index) => vec![driver(index)],
        _ => Vec::new(),
    };
    assert_eq!(named, wanted);
    let root = eval.folder().root().to_owned();
    let is_filmed = |episode: &Episode| {
        let video = episode.video.as_ref();
        video.is_some_and(|video| root.join(&video.file).is_file())
    };
    assert!(episodes.iter().all(is_filmed));
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_python_policy_is_told_the_card_of_its_rank() {
    let name = word(device());
    let root = demo_policy().join("../../..");
    let toy = root.join("tests/fixtures/policies/toy.py");
    let job = json!({
        "name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 2},
        "policy_type": "python", "num_episodes": 4,
        "policy_config_dict": {
            "policy": format!("{}:Placed", toy.display()), "python": root.join(".venv"),
            "policy_kwargs": {"wanted": name},
        },
    });
    let eval = Eval::new(&[job])
        .nproc(1)
        .words(&["--export-mode=none", "--policy-device", &name]);
    eval.run().succeeds();
    assert_eq!(eval.report().overall.errors, 0);
}

/// Returns the word for a device on the command line.
fn word(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}
