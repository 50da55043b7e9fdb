//! Tests of memory shortage: a policy that allocates an absurd amount for more than two rows at a
//! time.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tch::{CModule, Device, Kind, Tensor};

use crate::command::Eval;

/// Maximum number of rows for which the policy succeeds.
const ROOM: f64 = 2.0;

/// More bytes than any address space has (x86-64: 2^47), whatever the machine promises.
const ABSURD: f64 = (1_u64 << 50) as f64;

/// Writes a TorchScript module whose actions are zero. Its allocation depends on the number of
/// rows, so that tracing keeps it.
fn policy(folder: &Path) -> PathBuf {
    let inputs = [
        Tensor::zeros([2, 0, 1, 1, 3], (Kind::Uint8, Device::Cpu)),
        Tensor::zeros([2, 3], (Kind::Float, Device::Cpu)),
        Tensor::zeros([2, 8], (Kind::Int64, Device::Cpu)),
    ];
    let mut forward = |inputs: &[Tensor]| {
        let none = inputs[1].select(1, 0) * 0.0;
        let too_many = ((&none + 1.0).sum(Kind::Float) - ROOM)
            .clamp_min(0.0)
            .reshape([1]);
        let filler = Tensor::zeros([1], (Kind::Float, Device::Cpu));
        let filler = filler.repeat_interleave_self_tensor(
            &(too_many * ABSURD).to_kind(Kind::Int64),
            0,
            None,
        );
        let still = none + filler.sum(Kind::Float);
        vec![still.reshape([-1, 1, 1]).expand([-1, 50, 7], false)]
    };
    let module = CModule::create_by_tracing("Hungry", "forward", &inputs, &mut forward).unwrap();
    let path = folder.join("policy.pt");
    module.save(&path).unwrap();
    path
}

fn job(name: &str, policy: &Path) -> Value {
    json!({
        "name": name,
        "arena_env_args": {"environment": "reach", "num_envs": 4},
        "policy_type": "torchscript",
        "policy_config_dict": {"model_path": policy, "cameras": [], "state_keys": ["eef_position"], "max_tokens": 8},
        "num_episodes": 6,
    })
}

#[test]
fn a_batch_that_does_not_fit_is_halved_and_no_episode_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(folder.path());
    let words = ["--max-batch", "4", "--pipeline-stages", "1", "--no-dataset"];
    let eval = Eval::new(&[job("first", &policy), job("second", &policy)])
        .nproc(1)
        .words(&words);
    let ended = eval.run().succeeds();
    let ended = ended.stderr_has(
        "first: out of memory with 4 rows in one inference: at most 2 from now on; --max-batch 2",
    );
    ended.stdout_has(
        "first: out of memory once: from then on at most 2 rows were inferred at a \
        time; --max-batch 2",
    );
    assert_eq!(
        eval.episodes()
            .iter()
            .filter(|episode| episode.error.is_none())
            .count(),
        12
    );
    let report = eval.report();
    let found: Vec<_> = report
        .per_job
        .iter()
        .map(|job| (job.out_of_memory, job.out_of_memory_batch))
        .collect();
    assert_eq!(
        found,
        [(1, Some(2)), (0, Some(2))],
        "the second job knows it from the first"
    );
    assert_eq!(report.per_rank[0].out_of_memory, 1);
}
