//! LIBERO (Liu et al. 2023) and LIBERO-PRO (Zhou et al. 2025).
//!
//! Episodes, step limits, the ten steps in which objects settle, the seed and the cameras of 256 ×
//! 256 pixels are those of OpenVLA's evaluation, which openpi repeats. LIBERO's own configuration
//! (`libero/configs/eval/default.yaml`) has 20 episodes of 600 steps, and few results use it.

mod tasks;

use serde_json::{Value, json};

use crate::suites::{Numbers, Protocol, SuiteRow};

const OPENVLA: (&str, &str) = (
    "OpenVLA, openpi",
    "openvla/openvla experiments/robot/libero/run_libero_eval.py; \
     Physical-Intelligence/openpi examples/libero/main.py",
);

const LIBERO_PRO: (&str, &str) = (
    "LIBERO-PRO",
    "Zxy-MLlab/LIBERO-PRO README.md (step limits), libero/evaluation/runner.py and \
     configs/eval.yaml; episodes: openvla/openvla experiments/robot/libero/run_libero_eval.py",
);

/// All suites. A table: one line per row.
#[rustfmt::skip]
pub(super) const SUITES: &[SuiteRow] = &[
    base("libero_spatial", "LIBERO-Spatial: the same objects in other places", tasks::SPATIAL, 220),
    base("libero_object", "LIBERO-Object: other objects in the same scene", tasks::OBJECT, 280),
    base("libero_goal", "LIBERO-Goal: other goals in the same scene", tasks::GOAL, 300),
    base("libero_10", "LIBERO-10, also LIBERO-Long: ten long tasks", tasks::LONG, 520),
    base("libero_90", "LIBERO-90: ninety short tasks", tasks::NINETY, 400),
    pro("libero_spatial_lan", "LIBERO-PRO: LIBERO-Spatial in other words", tasks::SPATIAL, 220),
    pro("libero_spatial_object", "LIBERO-PRO: LIBERO-Spatial, objects that look different", tasks::SPATIAL, 220),
    pro("libero_spatial_swap", "LIBERO-PRO: LIBERO-Spatial, objects in swapped places", tasks::SPATIAL, 220),
    pro("libero_spatial_task", "LIBERO-PRO: LIBERO-Spatial, other tasks in the same scenes", tasks::SPATIAL, 220),
    pro("libero_object_lan", "LIBERO-PRO: LIBERO-Object in other words", tasks::OBJECT, 280),
    pro("libero_object_object", "LIBERO-PRO: LIBERO-Object, objects that look different", tasks::OBJECT, 280),
    pro("libero_object_swap", "LIBERO-PRO: LIBERO-Object, objects in swapped places", tasks::OBJECT, 280),
    pro("libero_object_task", "LIBERO-PRO: LIBERO-Object, other tasks in the same scenes", tasks::OBJECT, 280),
    pro("libero_goal_lan", "LIBERO-PRO: LIBERO-Goal in other words", tasks::GOAL, 300),
    pro("libero_goal_object", "LIBERO-PRO: LIBERO-Goal, objects that look different", tasks::GOAL, 300),
    pro("libero_goal_swap", "LIBERO-PRO: LIBERO-Goal, objects in swapped places", tasks::GOAL, 300),
    pro("libero_goal_task", "LIBERO-PRO: LIBERO-Goal, other tasks in the same scenes", tasks::GOAL, 300),
    pro("libero_10_lan", "LIBERO-PRO: LIBERO-10 in other words", tasks::LONG, 520),
    pro("libero_10_object", "LIBERO-PRO: LIBERO-10, objects that look different", tasks::LONG, 520),
    pro("libero_10_swap", "LIBERO-PRO: LIBERO-10, objects in swapped places", tasks::LONG, 520),
    pro("libero_10_task", "LIBERO-PRO: LIBERO-10, other tasks in the same scenes", tasks::LONG, 520),
];

const fn base(
    name: &'static str,
    about: &'static str,
    tasks: &'static [&'static str],
    max_episode_steps: u64,
) -> SuiteRow {
    row(name, about, tasks, max_episode_steps, OPENVLA, environment)
}

/// A suite of LIBERO-PRO. Its tasks have the names of those that they were made from; what is to be
/// done is said in their files only.
const fn pro(
    name: &'static str,
    about: &'static str,
    tasks: &'static [&'static str],
    max_episode_steps: u64,
) -> SuiteRow {
    row(
        name,
        about,
        tasks,
        max_episode_steps,
        LIBERO_PRO,
        pro_environment,
    )
}

const fn row(
    name: &'static str,
    about: &'static str,
    tasks: &'static [&'static str],
    max_episode_steps: u64,
    (authors, source): (&'static str, &'static str),
    environment: fn(&SuiteRow, usize, &Numbers) -> Value,
) -> SuiteRow {
    SuiteRow {
        name,
        about,
        simulator: "libero",
        tasks,
        protocol: Protocol {
            version: "1",
            numbers: Numbers {
                episodes: 50,
                max_episode_steps,
                seed: 7,
            },
            success: "the goal of the task's BDDL file holds after a step, which ends the episode",
            initial_states: "episode i begins in the benchmark's initial state i, after 10 steps \
                             without motion; the seed places fixtures that are not part of it",
            authors,
            source,
        },
        is_numbered: true,
        environment,
    }
}

fn environment(suite: &SuiteRow, task: usize, _: &Numbers) -> Value {
    json!({
        "environment": "jobs/suites/simulators/libero_env.py:make",
        "env_kwargs": {"suite": suite.name, "task": task, "size": 256, "settle_steps": 10},
        "mapping": "jobs/suites/simulators/libero_gr00t.yaml",
        "success": "info.success",
    })
}

fn pro_environment(suite: &SuiteRow, task: usize, numbers: &Numbers) -> Value {
    let mut environment = environment(suite, task, numbers);
    environment["env_kwargs"]["instruction"] = "bddl".into();
    environment
}
