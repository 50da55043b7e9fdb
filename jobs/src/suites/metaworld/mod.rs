//! Meta-World (Yu et al. 2019): multi-task suites, whose policies see the goal, and the tasks of
//! ML45, whose policies do not.
//!
//! The protocol is that of `evaluation` in metaworld 3.1.1. There, each episode draws one of the
//! benchmark's 50 goals; here, episode i has goal i, so that each goal is used once. ML45's
//! `metalearning_evaluation` lets a policy adapt in ten episodes first, which a jobs file cannot
//! express: these suites evaluate policies as they are.

mod tasks;

use serde_json::{Value, json};

use crate::suites::{Numbers, Protocol, SuiteRow};

/// All suites. A table: one line per row.
#[rustfmt::skip]
pub(super) const SUITES: &[SuiteRow] = &[
    row("metaworld_mt10", "Meta-World MT10: ten tasks, the goal is seen", tasks::MT10, mt10),
    row("metaworld_mt50", "Meta-World MT50: fifty tasks, the goal is seen", tasks::MT50, mt50),
    row("metaworld_ml45_train", "Meta-World ML45: the 45 tasks to train on, the goal is hidden", tasks::ML45_TRAIN, ml45_train),
    row("metaworld_ml45_test", "Meta-World ML45: the five tasks to test on, the goal is hidden", tasks::ML45_TEST, ml45_test),
];

const fn row(
    name: &'static str,
    about: &'static str,
    tasks: &'static [&'static str],
    environment: fn(&SuiteRow, usize, &Numbers) -> Value,
) -> SuiteRow {
    SuiteRow {
        name,
        about,
        simulator: "metaworld",
        tasks,
        protocol: Protocol {
            version: "1",
            numbers: Numbers {
                episodes: 50,
                max_episode_steps: 500,
                seed: 0,
            },
            success: "`info.success` of a step, which ends the episode",
            initial_states: "episode i has goal i of the task's 50 in the benchmark with this seed",
            authors: "metaworld",
            source: "Farama-Foundation/Metaworld metaworld/evaluation.py `evaluation`, \
                     `max_path_length` of sawyer_xyz_env.py, `SEED = 0` of README.md",
        },
        is_numbered: false,
        environment,
    }
}

fn mt10(suite: &SuiteRow, task: usize, numbers: &Numbers) -> Value {
    environment("MT10", "train", suite.tasks[task], numbers)
}

fn mt50(suite: &SuiteRow, task: usize, numbers: &Numbers) -> Value {
    environment("MT50", "train", suite.tasks[task], numbers)
}

fn ml45_train(suite: &SuiteRow, task: usize, numbers: &Numbers) -> Value {
    environment("ML45", "train", suite.tasks[task], numbers)
}

fn ml45_test(suite: &SuiteRow, task: usize, numbers: &Numbers) -> Value {
    environment("ML45", "test", suite.tasks[task], numbers)
}

fn environment(benchmark: &str, split: &str, task: &str, numbers: &Numbers) -> Value {
    json!({
        "environment": "jobs/suites/simulators/metaworld_env.py:make",
        "env_kwargs": {"benchmark": benchmark, "split": split, "task": task,
                       "benchmark_seed": numbers.seed, "camera": "corner4", "size": 224},
        "mapping": "jobs/suites/simulators/metaworld.yaml",
        "success": "info.success",
        "end_on_success": true,
    })
}
