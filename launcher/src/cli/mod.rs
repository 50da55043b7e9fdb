//! The command line: torchrun's options with defaults from `PET_*`, parsed as torchrun parses them.
//!
//! ```text
//! argv ──words::split──► options, program ──clap──► Cli
//! PET_* ──pet::options──────┘ (what argv does not set)
//! ```
//! The words are split by `words` and not by clap, because argparse's rules differ from clap's
//! (both spellings, abbreviations, the end of options at the first positional). Names, types and
//! `--help` come from clap, from one declaration in [`options`].

pub mod built_in;
pub mod commands;
pub mod environment;
pub mod error;
pub mod options;
pub mod pet;
pub mod python;
pub mod screen;
pub mod words;

use std::error::Error as _;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::CommandFactory as _;
use clap::Parser as _;
use clap::error::{ContextKind, ContextValue};
use jobs::usage::with_examples;

use crate::cli::commands::USERS_PROGRAM;
pub use crate::cli::environment::Environment;
use crate::cli::error::FlagError;
pub use crate::cli::options::{Cli, CompletionShell};
use crate::cli::words::{GivenOption, Spelling, Split, split};

/// The request that a command line makes.
#[derive(Clone, Debug)]
pub enum CliRequest {
    /// Start a launch.
    Launch(Box<Cli>),
    /// Print a text on stdout: help, or the version.
    Print(String),
    /// Print the completions for a shell.
    PrintCompletion(CompletionShell),
    /// Write the man pages into a folder.
    WriteMan(PathBuf),
}

/// The reason why a command line, or a default in the environment, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CliError {
    /// A usage error, in argparse's words.
    #[error("{0}")]
    Usage(String),
    /// A `PET_<FLAG>` that is not a whole number; torchrun fails on it before it parses the command
    /// line.
    #[error(transparent)]
    Flag(#[from] FlagError),
}

impl CliError {
    /// Returns torchrun's exit code for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage(_) => 2,
            CliError::Flag(_) => 1,
        }
    }
}

/// Parses the words after the command's name.
///
/// # Errors
/// Returns a [`CliError`] for a command line that torchrun would refuse.
pub fn parse(words: Vec<OsString>, env: &Environment) -> Result<CliRequest, CliError> {
    let spellings = Spelling::of(&Cli::command());
    let defaults = pet::options(env, &spellings)?;
    let split = split(words, &spellings).map_err(|err| CliError::Usage(err.to_string()))?;
    if let Some(request) = information(&split)? {
        return Ok(request);
    }
    let given = split
        .options
        .iter()
        .chain(&defaults)
        .map(|(spelling, _)| spelling.long.clone())
        .collect();
    let words = normalized(&split, defaults)?;
    let mut cli = Cli::try_parse_from(words)
        .map_err(|err| CliError::Usage(in_argparse_words(&err, &spellings)))?;
    check(&split)?;
    cli.given = given;
    Ok(CliRequest::Launch(Box::new(cli)))
}

/// Returns the usage line that precedes a usage error.
pub fn usage() -> String {
    Cli::command().render_usage().to_string()
}

/// Returns the text of `--help`: the commands, and the names of all options.
pub fn short_help() -> String {
    screen::screen(&Cli::command())
}

/// Returns the text of `rrun help options`, which explains the options of the launcher.
pub fn help() -> String {
    with_examples(Cli::command(), commands::examples(USERS_PROGRAM))
        .render_help()
        .to_string()
}

/// Returns the request of the first option that asks for something else than a launch.
fn information(split: &Split<'_>) -> Result<Option<CliRequest>, CliError> {
    for (spelling, value) in &split.options {
        let request = match (spelling.long.as_str(), value) {
            ("help", _) => CliRequest::Print(short_help()),
            ("version", _) => CliRequest::Print(Cli::command().render_version()),
            ("print-completion", Some(shell)) => {
                let shell = CompletionShell::of(&shell.to_string_lossy()).map_err(|text| {
                    CliError::Usage(format!("argument {}: {text}", spelling.names()))
                })?;
                CliRequest::PrintCompletion(shell)
            }
            ("write-man", Some(folder)) => CliRequest::WriteMan(folder.into()),
            _ => continue,
        };
        return Ok(Some(request));
    }
    Ok(None)
}

/// Checks for errors that torchrun reports last, after the types of all values.
fn check(split: &Split<'_>) -> Result<(), CliError> {
    if split.program.is_empty() {
        let text = "the following arguments are required: training_script, training_script_args";
        return Err(CliError::Usage(text.to_owned()));
    }
    if split.unknown.is_empty() {
        return Ok(());
    }
    let unknown: Vec<_> = split
        .unknown
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    Err(CliError::Usage(format!(
        "unrecognized arguments: {}",
        unknown.join(" ")
    )))
}

/// Returns the command line in the one spelling that clap gets: `--long=value`, `--flag`, `--`,
/// program, arguments.
fn normalized(
    split: &Split<'_>,
    defaults: Vec<GivenOption<'_>>,
) -> Result<Vec<OsString>, CliError> {
    let is_given = |long: &str| {
        split
            .options
            .iter()
            .any(|(spelling, _)| spelling.long == long)
    };
    let defaults = defaults
        .into_iter()
        .filter(|(spelling, _)| !is_given(&spelling.long))
        .filter(is_checked);
    let options = defaults.chain(split.options.iter().cloned());
    let mut words = vec![OsString::from("rrun")];
    for (spelling, value) in options {
        let mut word = OsString::from(format!("--{}", spelling.long));
        if let Some(value) = value {
            if value.to_str().is_none() && spelling.long != "log-dir" {
                return Err(CliError::Usage(format!(
                    "argument {}: value is not UTF-8",
                    spelling.names()
                )));
            }
            word.push("=");
            word.push(value);
        }
        words.push(word);
    }
    words.push("--".into());
    // Without a program, clap would report that instead of a wrong value, which argparse reports
    // first.
    words.extend(if split.program.is_empty() {
        vec!["-".into()]
    } else {
        split.program.clone()
    });
    Ok(words)
}

/// Returns whether a default has to be checked: torchrun does not check variables against an
/// option's choices, and the only option with choices and a variable has no effect here.
fn is_checked((spelling, _): &GivenOption<'_>) -> bool {
    spelling.long != "start-method"
}

fn in_argparse_words(err: &clap::Error, spellings: &[Spelling]) -> String {
    let argument = match err.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => {
            argument.split([' ', '[']).next().unwrap_or_default()
        }
        _ => "",
    };
    let spelling = spellings
        .iter()
        .find(|spelling| format!("--{}", spelling.long) == argument);
    match (spelling, err.source()) {
        (Some(spelling), Some(source)) => format!("argument {}: {source}", spelling.names()),
        _ => err
            .to_string()
            .trim_start_matches("error: ")
            .trim_end()
            .to_owned(),
    }
}

#[cfg(test)]
mod tests;
