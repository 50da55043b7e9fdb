//! PushT (Chi et al. 2023) in gym-pusht, as LeRobot evaluates it.

use serde_json::{Value, json};

use crate::suites::{Numbers, Protocol, SuiteRow, seeded};

pub(super) const SUITES: &[SuiteRow] = &[SuiteRow {
    name: "gym_pusht",
    about: "PushT: push a T onto its outline",
    simulator: "pusht",
    tasks: &["PushT-v0"],
    protocol: Protocol {
        version: "1",
        numbers: Numbers {
            episodes: 50,
            max_episode_steps: 300,
            seed: 1000,
        },
        success: "the T covers 95 % of its outline after a step, which ends the episode",
        initial_states: "episode i is reset with the seed plus i",
        authors: "LeRobot",
        source: "huggingface/lerobot `EvalConfig`, `EvalPipelineConfig`, `PushtEnv` and \
                 `eval_policy` of lerobot_eval.py; gym-pusht 0.1.8",
    },
    is_numbered: false,
    environment,
}];

fn environment(suite: &SuiteRow, task: usize, numbers: &Numbers) -> Value {
    let id = format!("gym_pusht/{}", suite.tasks[task]);
    let pictures =
        json!({"obs_type": "pixels_agent_pos", "observation_width": 96, "observation_height": 96});
    let mut environment = seeded::environment(&id, "gym_pusht", numbers, pictures);
    environment["mapping"] = "jobs/suites/simulators/pusht.yaml".into();
    environment["success"] = "info.is_success".into();
    environment
}
