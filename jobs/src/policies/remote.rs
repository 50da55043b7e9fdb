//! The rows of policies on a server, and the settings that they share.

use crate::policies::{MemoryRule, PathTo, PolicyDescription, Serving, Setting, ValueKind};

/// Returns the row of a policy on a server, which needs nothing on the GPU of its rank.
pub(super) const fn row(
    name: &'static str,
    aliases: &'static [&'static str],
    about: &'static str,
    example: &'static str,
    settings: &'static [&'static [Setting]],
) -> PolicyDescription {
    PolicyDescription {
        name,
        aliases,
        about,
        page: "remote-policies.md",
        example,
        settings,
        memory: MemoryRule::Nothing,
        has_checkpoint: false,
        has_length: false,
        serving: Serving::Interface,
        is_remote: true,
    }
}

/// What every server has.
pub(super) const SERVER: &[Setting] = &[
    Setting::new(
        "remote_host",
        ValueKind::Text,
        "localhost",
        "name or address of the server",
    )
    .of_place(),
    Setting::new(
        "remote_port",
        ValueKind::Port,
        "by protocol",
        "port of the server",
    )
    .of_place(),
    Setting::new(
        "remote_api_token",
        ValueKind::Text,
        "none",
        "the token, which plans and journals would show",
    )
    .of_place(),
    Setting::new(
        "remote_api_token_env",
        ValueKind::Text,
        "none",
        "the environment variable that holds the token",
    )
    .of_place(),
    Setting::new(
        "remote_timeout_s",
        ValueKind::Seconds,
        "by protocol",
        "time limit for each of connecting, sending a request, and receiving the answer",
    )
    .of_place(),
    Setting::new(
        "remote_retry_s",
        ValueKind::Seconds,
        "300",
        "how long the server may be unavailable",
    )
    .of_place(),
];

/// What servers with websockets have beside [`SERVER`].
pub(super) const WEBSOCKET: &[Setting] = &[Setting::new(
    "remote_ca_file",
    ValueKind::Path(PathTo::File),
    "the certificate authorities that browsers trust",
    "PEM file with the certificate authority of a server with `wss://`",
)
.of_place()];
