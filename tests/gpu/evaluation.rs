//! Tests of an evaluation with the demo's checkpoint on the GPU.

use serde_json::{Value, json};

use c10d::cuda;
use tch::Device;

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
    let device = device();
    let name = if let Device::Cuda(index) = device {
        format!("cuda:{index}")
    } else {
        "cpu".to_owned()
    };
    let eval = Eval::new(&[job("reach")])
        .nproc(1)
        .with_video()
        .words(&["--policy-device", &name]);
    let ended = eval.run();
    if !ended.status.success() && ended.stderr.contains("EGL") {
        println!(
            "skipped: nothing here draws the pictures of a simulator:\n{}",
            ended.stderr
        );
        return;
    }
    ended.succeeds();
    let episodes = eval.episodes();
    assert_eq!(
        (
            episodes.len(),
            episodes
                .iter()
                .filter(|episode| episode.error.is_some())
                .count()
        ),
        (8, 0)
    );
    let solved = episodes
        .iter()
        .filter(|episode| episode.success == Some(true))
        .count();
    println!("{solved} of 8 episodes solved");
    assert!(
        solved >= 5,
        "{solved} of 8 episodes solved, on a CPU it is nearly all"
    );
    println!("{:?}", eval.report().run.gpus);
    let named: Vec<_> = eval
        .report()
        .run
        .gpus
        .into_iter()
        .map(|gpu| gpu.name)
        .collect();
    assert_eq!(named, name_of(device).into_iter().collect::<Vec<_>>());
    let videos = walk(eval.folder().root())
        .into_iter()
        .filter(|path| path.ends_with(".mp4"))
        .count();
    assert!(videos > 0, "there are no videos");
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_python_policy_is_told_the_card_of_its_rank() {
    let device = device();
    let name = match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    };
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
        .words(&["--no-dataset", "--policy-device", &name]);
    eval.run().succeeds();
    assert_eq!(eval.report().overall.errors, 0);
}

/// Returns the driver's name of a GPU; `None` for a CPU.
fn name_of(device: Device) -> Option<String> {
    let Device::Cuda(index) = device else {
        return None;
    };
    Some(cuda::load().unwrap().device(index).unwrap().name)
}

/// Returns the files below a folder.
fn walk(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let below = |path: std::path::PathBuf| match path.is_dir() {
        true => walk(&path),
        false => vec![path.display().to_string()],
    };
    entries.flat_map(below).collect()
}
