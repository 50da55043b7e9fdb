//! The row of `torchscript`.

use crate::policies::setting::COUNT;
use crate::policies::{MemoryRule, PathTo, PolicyDescription, Serving, Setting, ValueKind};

pub(super) static ROW: PolicyDescription = PolicyDescription {
    name: "torchscript",
    aliases: &[],
    about: "runs any TorchScript module",
    page: "policy.md",
    example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "torchscript",
 "policy_config_dict": {"model_path": "policy.pt", "state_keys": ["eef_position"]}, "num_episodes": 20}"#,
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
        ValueKind::Path(PathTo::File),
        "expected the file of a TorchScript module",
        "the module, as `torch.jit.save` writes it",
    ),
    Setting::new(
        "tokenizer_path",
        ValueKind::Path(PathTo::File),
        "UTF-8 bytes as tokens",
        "a `tokenizer.json`",
    ),
    Setting::new(
        "max_tokens",
        COUNT,
        "64",
        "number of tokens of an instruction",
    ),
    Setting::new(
        "cameras",
        ValueKind::Texts,
        "all",
        "cameras of the environment, in order",
    ),
    Setting::new(
        "state_keys",
        ValueKind::Texts,
        "all",
        "state vectors of the environment, in order",
    ),
    Setting::new(
        "action_chunk_length",
        COUNT,
        "all actions of a chunk",
        "number of actions to execute",
    ),
];
