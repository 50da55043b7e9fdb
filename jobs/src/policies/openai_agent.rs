//! The row of `openai_agent`.

use crate::policies::{MemoryRule, PathTo, PolicyDescription, Serving, Setting, ValueKind};

pub(super) static ROW: PolicyDescription = PolicyDescription {
    name: "openai_agent",
    aliases: &[],
    about: "a vision-language model behind a chat server plans skills or discrete actions",
    page: "vision-language-agents.md",
    example: r#"{"name": "push", "num_episodes": 20, "arena_env_args": {"environment": "push", "num_envs": 8},
 "policy_type": "openai_agent",
 "policy_config_dict": {"model_url": "http://localhost:8000/v1", "model": "nvidia/Cosmos-Reason2-8B"}}"#,
    settings: &[SETTINGS, LIMITS],
    memory: MemoryRule::Nothing,
    has_checkpoint: false,
    has_length: false,
    serving: Serving::Refused(
        "it plans with the rewards, ends and action names of an environment, which clients do not \
         send",
    ),
    // It is asked for one environment at a time.
    is_remote: false,
};

/// Most of what is counted.
const MOST: u64 = 1_000_000;

const SETTINGS: &[Setting] = &[
    Setting::required(
        "model_url",
        ValueKind::Text,
        "expected the address of a server, for example http://localhost:8000/v1",
        "`http://host:port/v1` or `https://…`",
    ),
    Setting::required(
        "model",
        ValueKind::Text,
        "expected the name that the server knows",
        "the name that the server knows",
    ),
    Setting::new(
        "api_key_env",
        ValueKind::Text,
        "none",
        "name of the variable that contains the key",
    ),
    Setting::new(
        "ca_file",
        ValueKind::Path(PathTo::File),
        "the certificate authorities that browsers trust",
        "PEM file with the certificate authority of the server",
    ),
    Setting::new(
        "temperature",
        ValueKind::Number(0.0, 2.0),
        "0",
        "sampling temperature",
    ),
    Setting::new(
        "extra_body",
        ValueKind::Map("object"),
        "{}",
        "additional fields of each request",
    ),
    Setting::new(
        "cameras",
        ValueKind::Texts,
        "all",
        "cameras whose images are sent",
    ),
    Setting::new("language_only", ValueKind::Flag, "false", "send no images"),
    Setting::new(
        "actions",
        ValueKind::Texts,
        "from the environment",
        "names of discrete actions",
    ),
    Setting::new(
        "chat_history",
        ValueKind::Flag,
        "false",
        "include earlier requests and answers of the episode",
    ),
    Setting::new(
        "system_prompt_file",
        ValueKind::Path(PathTo::File),
        "built-in prompt",
        "text before the list of actions",
    ),
];

const LIMITS: &[Setting] = &[
    Setting::new(
        "max_tokens",
        ValueKind::Whole(0, MOST),
        "2048",
        "maximum length of an answer",
    ),
    Setting::new(
        "max_completion_tokens",
        ValueKind::Whole(0, MOST),
        "2048",
        "the same, for newer models of OpenAI",
    ),
    Setting::new(
        "max_invalid_actions",
        ValueKind::Whole(1, MOST),
        "10",
        "failed actions or invalid answers after which an episode ends",
    ),
    Setting::new(
        "max_concurrent_requests",
        ValueKind::Whole(1, MOST),
        "16",
        "requests of a rank at the same time",
    ),
    Setting::new(
        "request_timeout_s",
        ValueKind::Number(0.1, 3600.0),
        "120",
        "for one request, from connecting to the last byte",
    ),
    Setting::new(
        "max_retries",
        ValueKind::Whole(0, MOST),
        "5",
        "requests after the first that fails",
    ),
    Setting::new(
        "retry_wait_s",
        ValueKind::Number(0.0, 60.0),
        "1",
        "wait before the first retry, doubled each time",
    ),
];
