//! Environment variables that are known before the start: threads, NCCL, and a rank's own GPU.

use std::collections::BTreeMap;

use anyhow::bail;
use jobs::say::{FORMAT_VARIABLE, QUIET_VARIABLE};

use crate::cli::{Cli, Environment};

/// torchrun's note about OMP_NUM_THREADS (torch/distributed/run.py, torch 2.11). Tools look for
/// this text.
const OMP_NOTE: &str = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid \
    your system being overloaded, please further tune the variable for optimal performance in your application as needed.";

/// Returns the variables of all ranks, and a note if torchrun's thread rule took effect.
pub fn shared(env: &Environment, nproc: usize) -> (BTreeMap<String, String>, Option<String>) {
    let mut variables = BTreeMap::new();
    let mut note = None;
    if nproc > 1 && !env.has("OMP_NUM_THREADS") {
        variables.insert("OMP_NUM_THREADS".to_owned(), "1".to_owned());
        note = Some(OMP_NOTE.to_owned());
    }
    if !env.has("TORCH_NCCL_ASYNC_ERROR_HANDLING") {
        variables.insert("TORCH_NCCL_ASYNC_ERROR_HANDLING".to_owned(), "1".to_owned());
    }
    (variables, note)
}

/// Returns the variable that lets libtorch's threads sleep while they wait, for ranks of a built-in
/// program. GNU's threads spin by default and take cores from the simulators, which made one rank
/// with two threads eleven times slower than with one.
pub fn of_waiting(env: &Environment) -> Option<(String, String)> {
    let is_said = env.has("OMP_WAIT_POLICY") || env.has("GOMP_SPINCOUNT");
    (!is_said).then(|| ("OMP_WAIT_POLICY".to_owned(), "passive".to_owned()))
}

/// Returns the variables for the log style of built-in programs, if options set it.
pub fn of_style(cli: &Cli) -> BTreeMap<String, String> {
    let format = cli
        .log_format
        .as_ref()
        .map(|format| (FORMAT_VARIABLE.to_owned(), format.clone()));
    let quiet = cli
        .quiet
        .then(|| (QUIET_VARIABLE.to_owned(), "1".to_owned()));
    format.into_iter().chain(quiet).collect()
}

/// Returns the variables of one rank. With `is_virtual` each rank sees only its own GPU, as device
/// 0.
///
/// # Errors
/// Returns an error if there are more ranks than entries in `CUDA_VISIBLE_DEVICES`.
pub fn of_rank(
    env: &Environment,
    local_rank: usize,
    is_virtual: bool,
) -> anyhow::Result<BTreeMap<String, String>> {
    let variable = |name: &str, value: String| (name.to_owned(), value);
    if !is_virtual {
        return Ok(BTreeMap::from([variable(
            "LOCAL_RANK",
            local_rank.to_string(),
        )]));
    }
    let device = match env
        .get("CUDA_VISIBLE_DEVICES")
        .map(|list| list.to_string_lossy())
    {
        None => local_rank.to_string(),
        Some(list) => match list.split(',').nth(local_rank) {
            Some(item) => item.trim().to_owned(),
            None => bail!(
                "local_rank {local_rank} exceeds available GPUs in CUDA_VISIBLE_DEVICES={list}"
            ),
        },
    };
    Ok(BTreeMap::from([
        variable("LOCAL_RANK", "0".to_owned()),
        variable("CUDA_VISIBLE_DEVICES", device),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_sleep_while_they_wait_unless_the_user_says_otherwise() {
        let passive = ("OMP_WAIT_POLICY".to_owned(), "passive".to_owned());
        assert_eq!(of_waiting(&Environment::default()), Some(passive));
        for said in ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"] {
            assert_eq!(of_waiting(&Environment::from([(said, "1")])), None);
        }
    }
}
