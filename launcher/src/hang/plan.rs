//! `--hang-timeout` and `--on-hang`.

use std::time::Duration;

use serde::Serialize;

use crate::cli::Cli;
use crate::plan::error::PlanError;

/// When a rank hangs, and what happens then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HangPlan {
    /// How long a rank may be silent; `None` if nobody watches.
    pub timeout: Option<Duration>,
    /// What happens after the report.
    pub then: OnHang,
}

/// What happens to a launch with a rank that hangs, after the report has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnHang {
    /// Nothing.
    #[default]
    Report,
    /// The launch fails.
    Abort,
    /// The ranks that hang are killed, so that the failure policy decides.
    Restart,
}

impl HangPlan {
    /// Reads the options.
    ///
    /// # Errors
    /// Returns an error for a timeout that is not positive, and for `--on-hang` without a timeout.
    pub fn new(cli: &Cli) -> Result<HangPlan, PlanError> {
        let then = match cli.on_hang.as_deref() {
            Some("abort") => OnHang::Abort,
            Some("restart") => OnHang::Restart,
            Some(_) | None => OnHang::Report,
        };
        let Some(seconds) = cli.hang_timeout else {
            return match cli.on_hang {
                Some(_) => Err(PlanError::OnHangWithoutTimeout),
                None => Ok(HangPlan::default()),
            };
        };
        // Limited to 32 bits, so that a deadline can be computed from it.
        let seconds = u32::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        let seconds = seconds.ok_or(PlanError::HangTimeout(cli.hang_timeout.unwrap_or(0)))?;
        Ok(HangPlan {
            timeout: Some(Duration::from_secs(seconds.into())),
            then,
        })
    }
}
