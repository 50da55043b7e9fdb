//! The Fetch tasks (Plappert et al. 2018) in gymnasium-robotics.

use serde_json::{Value, json};

use crate::suites::{Numbers, Protocol, SuiteRow, seeded};

pub(super) const SUITES: &[SuiteRow] = &[SuiteRow {
    name: "gymnasium_fetch",
    about: "Fetch: push, slide, pick and place a block",
    simulator: "fetch",
    tasks: &["FetchPush-v4", "FetchSlide-v4", "FetchPickAndPlace-v4"],
    protocol: Protocol {
        version: "1",
        numbers: Numbers {
            episodes: 100,
            max_episode_steps: 50,
            seed: 0,
        },
        success: "the object is at its goal after the last step",
        initial_states: "episode i is reset with the seed plus i; the authors name no seeds",
        authors: "OpenAI baselines",
        source: "openai/baselines baselines/her/rollout.py `RolloutWorker`: success after the last \
                 step, averaged over `history_len=100`; gymnasium-robotics 1.4.2",
    },
    is_numbered: false,
    environment,
}];

fn environment(suite: &SuiteRow, task: usize, numbers: &Numbers) -> Value {
    let arguments =
        json!({"render_mode": "rgb_array", "width": 224, "height": 224, "success_at_end": true});
    let id = suite.tasks[task];
    let mut environment = seeded::environment(id, "gymnasium_robotics", numbers, arguments);
    environment["mapping"] = "jobs/suites/simulators/fetch.yaml".into();
    environment["success"] = "info.success_at_end".into();
    environment
}
