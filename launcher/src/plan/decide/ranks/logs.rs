//! The plan of log files and console output: folder, console and filters.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::cli::python::int;
use crate::cli::{Cli, Environment};
use crate::plan::LogPlan;

/// The value of `--log-dir` that disables all log files.
const NO_FOLDER: &str = "/dev/null";

impl LogPlan {
    /// Returns the log plan that `cli` and `env` ask for.
    ///
    /// # Errors
    /// Returns an error if the log folder is a file.
    pub fn new(cli: &Cli, env: &Environment) -> anyhow::Result<LogPlan> {
        let disabled = cli.log_dir.as_deref() == Some(Path::new(NO_FOLDER));
        // An empty path means none, as in Python.
        let dir = cli
            .log_dir
            .clone()
            .filter(|dir| !dir.as_os_str().is_empty() && !disabled);
        let template = env
            .get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
            .map(|text| text.to_string_lossy().into_owned());
        Ok(LogPlan {
            dir: dir.map(folder).transpose()?,
            disabled,
            duplicate_stdout: texts(&cli.duplicate_stdout_filters),
            duplicate_stderr: texts(&cli.duplicate_stderr_filters),
            prefix_template: cli.log_line_prefix_template.clone().or(template),
        })
    }
}

/// Returns the local ranks that `--local-ranks-filter` shows, or `None` for all.
///
/// # Errors
/// Returns an error if the filter is not a comma-separated list of numbers.
pub fn shown_ranks(filter: &str) -> anyhow::Result<Option<Vec<i64>>> {
    if filter.is_empty() {
        return Ok(None);
    }
    let ranks: Option<Vec<i64>> = filter.split(',').map(int).collect();
    ranks.map(Some).context(
        "--local_ranks_filter must be a comma-separated list of integers e.g. \
         --local_ranks_filter=0,1,2",
    )
}

fn folder(dir: PathBuf) -> anyhow::Result<PathBuf> {
    let is_file = dir.exists() && !dir.is_dir();
    ensure!(!is_file, "log_dir: {} is a file", dir.display());
    Ok(dir)
}

/// Splits a comma-separated list in which `,,` is a literal comma. Empty texts are left out,
/// because every line contains them.
fn texts(list: &str) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut rest = list;
    while let Some((text, after)) = rest.split_once(',') {
        push(&mut texts, text);
        match after.strip_prefix(',') {
            Some(after) => {
                push(&mut texts, ",");
                rest = after;
            }
            None => {
                texts.push(String::new());
                rest = after;
            }
        }
    }
    push(&mut texts, rest);
    texts.retain(|text| !text.is_empty());
    texts
}

fn push(texts: &mut [String], text: &str) {
    if let Some(last) = texts.last_mut() {
        last.push_str(text);
    }
}
