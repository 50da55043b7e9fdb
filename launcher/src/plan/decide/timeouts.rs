//! Timeouts: the grace period and the monitoring interval.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::cli::python::int;
use crate::cli::{Cli, Environment};

/// torchrun's time between SIGTERM and SIGKILL (torch/distributed/elastic/multiprocessing/api.py,
/// torch 2.11).
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// The variable for the default in seconds, known since torch 2.12.
const SHUTDOWN_VARIABLE: &str = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";

/// Returns `--shutdown-timeout`, else the value of its variable, else what the cluster leaves, or
/// 30 s.
///
/// # Errors
/// Returns an error if the value is not a whole number of seconds.
pub fn shutdown_timeout(
    cli: &Cli,
    env: &Environment,
    inferred: Option<Duration>,
) -> anyhow::Result<Duration> {
    let (from, found) = match (cli.shutdown_timeout, env.get(SHUTDOWN_VARIABLE)) {
        (Some(seconds), _) => ("--shutdown-timeout", seconds.to_string()),
        (None, Some(text)) => (SHUTDOWN_VARIABLE, text.to_string_lossy().into_owned()),
        (None, None) => return Ok(inferred.unwrap_or(SHUTDOWN_TIMEOUT)),
    };
    // Limited to 32 bits, so that a deadline can be computed from it.
    let seconds = int(&found).and_then(|seconds| u32::try_from(seconds).ok());
    seconds
        .map(|seconds| Duration::from_secs(seconds.into()))
        .with_context(|| {
            format!(
                "{from}: the shutdown timeout must be a whole number of seconds >= 0, got {found}"
            )
        })
}

/// Checks `--monitor-interval`, which must be a valid time but has no effect, because the launcher
/// sees an exit at once.
///
/// # Errors
/// Returns an error for zero, negative numbers and `nan`.
pub fn check_monitor_interval(cli: &Cli) -> anyhow::Result<()> {
    let given = cli.monitor_interval;
    ensure!(given > 0.0, "monitor_interval must be > 0, got {given}");
    Ok(())
}
