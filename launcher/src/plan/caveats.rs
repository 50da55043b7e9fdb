//! What this version does not do: refused where the launch would not be what was asked for, said in a line where it
//! only lacks something.

use crate::cli::{Cli, Environment};
use crate::plan::error::PlanError;
use crate::plan::streams::StreamMap;

/// torch/distributed/elastic/events/handlers.py, torch 2.11.
const EVENT_LOG_HANDLERS: [&str; 3] = ["null", "console", "dynamic_rendezvous"];

/// Refuses options that a later version will have, or none.
///
/// # Errors
/// The first such option.
pub fn refuse(cli: &Cli) -> Result<(), PlanError> {
    if let Some(name) = &cli.logs_specs {
        return Err(PlanError::LogsSpecs(name.clone()));
    }
    if !EVENT_LOG_HANDLERS.contains(&cli.event_log_handler.as_str()) {
        return Err(PlanError::EventLogHandler(cli.event_log_handler.clone()));
    }
    Ok(())
}

/// Lines about what has no effect.
pub fn notes(cli: &Cli, env: &Environment) -> Vec<String> {
    let is_static = cli.rdzv_backend == "static" && !cli.standalone;
    let has_master = cli.master_addr.is_some() || cli.master_port.is_some();
    let without_files = cli.log_dir.as_deref().is_some_and(|dir| dir.as_os_str() == "/dev/null");
    let wants_files =
        [&cli.redirects, &cli.tee].into_iter().any(|map| StreamMap::parse(map).is_ok_and(|map| !map.is_none()));
    let wants_timer = env.get("TORCHELASTIC_ENABLE_FILE_TIMER").is_some_and(|value| value == "1");
    let caveats = [
        (
            !is_static && has_master,
            "master_addr is only used for static rdzv_backend and when rdzv_endpoint is not specified.",
        ),
        (!is_static && cli.node_rank != 0, "--node-rank is only used with the static backend"),
        (without_files && wants_files, "-r and -t have no effect with --log-dir /dev/null"),
        (cli.event_log_handler == "console", "--event-log-handler console has no effect yet"),
        (wants_timer, "TORCHELASTIC_ENABLE_FILE_TIMER has no effect yet: no timer of a rank is watched"),
    ];
    caveats.into_iter().filter(|(applies, _)| *applies).map(|(_, note)| note.to_owned()).collect()
}
