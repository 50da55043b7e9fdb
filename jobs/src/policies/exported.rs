//! The row of `exported`.

use crate::policies::setting::COUNT;
use crate::policies::{MemoryRule, PathTo, PolicyDescription, Serving, Setting, ValueKind};

pub(super) static ROW: PolicyDescription = PolicyDescription {
    name: "exported",
    aliases: &[],
    about: "runs a `.pt2` package of `torch.export` and AOTInductor, without Python",
    page: "exported_policy.md",
    example: r#"{"name": "reach", "num_episodes": 20, "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "exported",
 "policy_config_dict": {"model_path": "reach.pt2"}}"#,
    settings: &[SETTINGS],
    memory: MemoryRule::Files,
    has_checkpoint: true,
    has_length: false,
    serving: Serving::Interface,
    is_remote: false,
};

const SETTINGS: &[Setting] = &[
    Setting::required(
        "model_path",
        ValueKind::Path(PathTo::Package),
        "expected the file of a `.pt2` package",
        "the package, as `export_policy.py` writes it",
    ),
    Setting::new(
        "tokenizer_path",
        ValueKind::Path(PathTo::File),
        "none",
        "a `tokenizer.json`, for a package whose tokens come from one",
    ),
    Setting::new(
        "cameras",
        ValueKind::Map("object"),
        "the same names",
        "names of the environment's cameras by those of the package",
    ),
    Setting::new(
        "states",
        ValueKind::Map("object"),
        "the same names",
        "names of the environment's state vectors by those of the package",
    ),
    Setting::new(
        "seed",
        ValueKind::Seed,
        "0",
        "part of the seed of the noise",
    ),
    Setting::new(
        "action_chunk_length",
        COUNT,
        "all actions of a chunk",
        "number of actions to execute",
    ),
    Setting::new(
        "cuda_graphs",
        ValueKind::Flag,
        "`true`",
        "whether each batch size is captured on a GPU and replayed",
    ),
];
