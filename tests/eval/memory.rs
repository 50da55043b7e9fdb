//! Tests of memory shortage: a policy that allocates an absurd amount for more than two rows at a
//! time.

use std::path::Path;

use serde_json::{Value, json};

use crate::eval::command::Eval;

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
    let policy = rig::fixture("modules/hungry.pt");
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
