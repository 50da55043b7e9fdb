//! The settings of every policy on a server.

use crate::policies::{Setting, ValueKind};

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
