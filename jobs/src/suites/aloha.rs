//! ALOHA's simulated tasks (Zhao et al. 2023) in gym-aloha, as LeRobot evaluates them.
//!
//! 50 episodes of 400 steps are also ACT's own numbers (`imitate_episodes.py`, `constants.py`).

use serde_json::{Value, json};

use crate::suites::{Numbers, Protocol, SuiteRow};

pub(super) const SUITES: &[SuiteRow] = &[SuiteRow {
    name: "gym_aloha",
    about: "ALOHA: hand over a cube, insert a peg; two arms",
    simulator: "aloha",
    tasks: &["AlohaTransferCube-v0", "AlohaInsertion-v0"],
    protocol: Protocol {
        version: "1",
        numbers: Numbers {
            episodes: 50,
            max_episode_steps: 400,
            seed: 1000,
        },
        success: "the reward is 4 (cube handed over, peg inserted) after a step, which ends the \
                  episode",
        initial_states: "episode i is reset with the seed plus i",
        authors: "LeRobot",
        source: "huggingface/lerobot `EvalConfig`, `EvalPipelineConfig`, `AlohaEnv` and \
                 `eval_policy` of lerobot_eval.py; gym-aloha 0.1.5",
    },
    is_numbered: false,
    environment,
}];

fn environment(suite: &SuiteRow, task: usize, numbers: &Numbers) -> Value {
    json!({
        "environment": "jobs/suites/simulators/aloha_env.py:make",
        "env_kwargs": {"task": suite.tasks[task], "first_seed": numbers.seed,
                       "max_episode_steps": numbers.max_episode_steps},
        "mapping": "jobs/suites/simulators/aloha.yaml",
        "success": "info.is_success",
    })
}
