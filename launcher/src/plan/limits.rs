//! How long: grace, monitoring.

use std::time::Duration;

use crate::cli::python::int;
use crate::cli::{Cli, Environment};
use crate::plan::error::PlanError;

/// torch/distributed/elastic/multiprocessing/api.py, torch 2.11: from SIGTERM to SIGKILL.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// The default since torch 2.12, in seconds.
const SHUTDOWN_VARIABLE: &str = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";

/// `--shutdown-timeout`, else its variable, else 30 s.
///
/// # Errors
/// What is no whole number of seconds.
pub fn shutdown_timeout(cli: &Cli, env: &Environment) -> Result<Duration, PlanError> {
    let (from, found) = match (cli.shutdown_timeout, env.get(SHUTDOWN_VARIABLE)) {
        (Some(seconds), _) => ("--shutdown-timeout", seconds.to_string()),
        (None, Some(text)) => (SHUTDOWN_VARIABLE, text.to_string_lossy().into_owned()),
        (None, None) => return Ok(SHUTDOWN_TIMEOUT),
    };
    // 32 bits, so that a deadline can be computed from it.
    let seconds = int(&found).and_then(|seconds| u32::try_from(seconds).ok());
    seconds.map(|seconds| Duration::from_secs(seconds.into())).ok_or(PlanError::ShutdownTimeout { from, found })
}

/// `--monitor-interval` changes nothing here, because an exit is seen at once, but must be a time.
///
/// # Errors
/// Zero, negative numbers and `nan`.
pub fn check_monitor_interval(cli: &Cli) -> Result<(), PlanError> {
    let is_time = cli.monitor_interval > 0.0;
    if is_time { Ok(()) } else { Err(PlanError::MonitorInterval(cli.monitor_interval)) }
}
