//! Checks the command line of `serve` before anything is started.

use std::ffi::OsString;

use jobs::policies::{PolicyType, not_served};
use jobs::serve_args::ServeArgs;

use crate::plan::error::PlanError;

/// Checks the words after `serve`. The ranks check the checkpoint and the port.
///
/// # Errors
/// Returns clap's text (errors and help), and an error for an unknown policy.
pub fn check(words: &[OsString]) -> Result<(), PlanError> {
    let args = ServeArgs::parse_words(words).map_err(|usage| {
        let code = u8::try_from(usage.exit_code()).unwrap_or(2);
        PlanError::EvalUsage {
            text: usage.render().to_string(),
            code,
        }
    })?;
    let choice = args
        .choice()
        .map_err(|err| PlanError::Serve(err.to_string()))?;
    let found = choice.policy_type;
    match PolicyType::of(&found) {
        Some(policy) if policy.row().is_served => Ok(()),
        Some(_) => Err(PlanError::Serve(not_served(&found).to_string())),
        None => {
            let known = PolicyType::names().join(", ");
            Err(PlanError::Serve(format!(
                "--policy `{found}` is neither a folder nor a known policy: expected a folder or one of {known}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        check(&words).unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_word_is_refused_before_anything_is_started() {
        assert!(
            refusal(&["--policy", "gr00d"])
                .starts_with("--policy `gr00d` is neither a folder nor a known policy")
        );
        assert!(
            refusal(&["--policy", "scripted"])
                .ends_with("expected a policy that can be served: gr00t")
        );
        assert!(refusal(&["--policy", "gr00t", "--max-batch", "0"]).contains("--max-batch"));
        assert!(check(&["--policy".into(), "gr00t".into()]).is_ok());
    }
}
