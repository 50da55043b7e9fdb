//! The row of `python`.

use crate::policies::setting::COUNT;
use crate::policies::{MemoryRule, PathTo, PolicyDescription, Serving, Setting, ValueKind};

pub(super) static ROW: PolicyDescription = PolicyDescription {
    name: "python",
    aliases: &[],
    about: "runs any Python class or function in an interpreter of its own",
    page: "python_policy.md",
    example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "python",
 "policy_config_dict": {"policy": "jobs/suites/policies/reach.py:Reach"},
 "num_episodes": 20}"#,
    settings: &[SETTINGS, LIMITS],
    memory: MemoryRule::Declared,
    has_checkpoint: false,
    has_length: false,
    serving: Serving::Interface,
    // All rows that need a chunk go to the worker in one call, on a CPU, too.
    is_remote: true,
};

/// The setting that declares GPU memory in GiB.
pub const DECLARED_MEMORY: &str = "policy_memory_gb";

/// Most restarts of a worker.
const MOST_RESTARTS: u64 = 1000;

/// Most GPU memory in GiB that is plausible.
const MOST_MEMORY: f64 = 4096.0;

const SETTINGS: &[Setting] = &[
    Setting::required(
        "policy",
        ValueKind::Factory,
        "expected `file.py:factory` or `package.module:factory`",
        "a callable or class that makes the policy",
    ),
    PYTHON,
    ENV,
    Setting::new(
        "policy_kwargs",
        ValueKind::Map("object"),
        "none",
        "keyword arguments of the factory",
    ),
    Setting::new("seed", ValueKind::Seed, "0", "the factory's `seed`"),
    Setting::new(
        "action_chunk_length",
        COUNT,
        "all actions of a chunk",
        "number of actions to execute",
    ),
];

/// The interpreter of a policy in Python.
pub(super) const PYTHON: Setting = Setting::new(
    "python",
    ValueKind::Path(PathTo::Interpreter),
    "`python3` from `PATH`",
    "interpreter, or the folder of its venv",
);

/// The environment variables of its process.
pub(super) const ENV: Setting = Setting::new(
    "env",
    ValueKind::Map("object"),
    "none",
    "environment variables; null removes one",
);

/// The limits of its process.
pub(super) const LIMITS: &[Setting] = &[
    Setting::new(
        "act_timeout_s",
        ValueKind::Seconds,
        "300",
        "time limit of a call of `act`",
    )
    .of_place(),
    Setting::new(
        "startup_timeout_s",
        ValueKind::Seconds,
        "600",
        "time limit from the start of the interpreter until the policy is made",
    )
    .of_place(),
    Setting::new(
        "max_restarts",
        ValueKind::Whole(0, MOST_RESTARTS),
        "3",
        "how often a worker that died or hung is started again, for each rank and job",
    )
    .of_place(),
    Setting::new(
        DECLARED_MEMORY,
        ValueKind::Number(0.0, MOST_MEMORY),
        "unknown",
        "GPU memory of the worker in GiB, for `rrun fit`",
    )
    .of_place(),
];
