//! The command line: torchrun's options with defaults from `PET_*`. clap parses it as torchrun's
//! argparse does: names with `-` or `_`, abbreviations, and the end of options at the first word
//! that is none.
//!
//! ```text
//! -r3 --nproc_per 2 --stand -- train.py --lr 1
//!  └► redirects=3, nproc-per-node=2, standalone       program: train.py   args: --lr 1
//! ```

pub mod built_in;
pub mod commands;
pub mod options;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, Command, CommandFactory as _, FromArgMatches as _};
use clap_complete::Shell;
use jobs::usage::{with_examples, with_negative_values};

use crate::cli::commands::USERS_PROGRAM;
pub use crate::cli::options::{Cli, int};

/// Options without a variable: torchrun has none for them, does not have the option, or does not
/// check the variable of an option that has no effect here.
const WITHOUT_VARIABLE: &[&str] = &[
    "logs-specs",
    "numa-binding",
    "start-method",
    "dry-run",
    "print-completion",
    "write-man",
    "help",
    "version",
];

/// The request that a command line makes.
#[derive(Clone, Debug)]
pub enum CliRequest {
    /// Start a launch.
    Launch(Box<Cli>),
    /// Print a text on stdout: help, or the version.
    Print(String),
    /// Print the completions for a shell.
    PrintCompletion(Shell),
    /// Write the man pages into a folder.
    WriteMan(PathBuf),
}

/// Parses the words after the command's name.
///
/// # Errors
/// Returns clap's error for a command line that torchrun would refuse, and a sentence for a
/// `PET_<FLAG>` that is not a whole number, on which torchrun fails before it parses.
pub fn parse(words: &[OsString], env: &Environment) -> anyhow::Result<CliRequest> {
    let (mut command, mut given) = parser(env)?;
    let mut read = |words: &[OsString]| {
        let named = [OsString::from("rrun")];
        command.try_get_matches_from_mut(named.iter().chain(words))
    };
    let matches = match read(words) {
        Err(err) if err.kind() == ErrorKind::DisplayHelp => {
            return Ok(CliRequest::Print(short_help()));
        }
        Err(err) if err.kind() == ErrorKind::DisplayVersion => {
            return Ok(CliRequest::Print(err.to_string()));
        }
        read_once => read_once.or_else(|err| match with_blank_joined(words) {
            Some(words) => read(&words).map_err(|_| err),
            None => Err(err),
        })?,
    };
    let mut cli = Cli::from_arg_matches(&matches)?;
    if let Some(shell) = cli.print_completion {
        return Ok(CliRequest::PrintCompletion(shell));
    }
    if let Some(folder) = cli.write_man {
        return Ok(CliRequest::WriteMan(folder));
    }
    let mut program = std::mem::take(&mut cli.words);
    if program.is_empty() {
        let text = "the following arguments are required: training_script, training_script_args";
        Err(command.error(ErrorKind::MissingRequiredArgument, text))?;
    }
    // As in argparse, `--` is dropped right before the program, which clap does, or right after it.
    let before = words[..words.len() - program.len()].last();
    if before.is_none_or(|word| word != "--") && program.get(1).is_some_and(|word| word == "--") {
        program.remove(1);
    }
    cli.program = program.remove(0);
    cli.args = program;
    let in_words = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let options = command.get_arguments();
    let options = options.filter(|option| in_words(option.get_id().as_str()));
    given.extend(options.filter_map(|option| option.get_long().map(str::to_owned)));
    cli.given = given;
    Ok(CliRequest::Launch(Box::new(cli)))
}

/// Returns the parser: both spellings of each option, and the variables `PET_*` as defaults. Also
/// returns the options that have one.
fn parser(env: &Environment) -> anyhow::Result<(Command, BTreeSet<String>)> {
    let (mut given, mut wrong) = (BTreeSet::new(), None);
    // In one pass, as to find an argument by its name is to move all others.
    let command = with_negative_values(Cli::command()).mut_args(|arg| {
        let Some(long) = arg.get_long().map(str::to_owned) else {
            return arg;
        };
        let other = long.replace('-', "_");
        let variable = format!("PET_{}", other.to_uppercase());
        let mut value = env.get(&variable).map(OsString::from);
        if WITHOUT_VARIABLE.contains(&&*long) {
            value = None;
        } else if let Some(text) = &value
            && matches!(arg.get_action(), ArgAction::SetTrue)
        {
            let text = text.to_string_lossy();
            let number = int(&text).with_context(|| {
                format!("{variable}: invalid literal for int() with base 10: '{text}'")
            });
            let is_set = number.map(|number| number != 0);
            let is_set = is_set.map_err(|err| wrong.get_or_insert(err)).ok();
            value = is_set.and_then(|is_set| is_set.then(|| "true".into()));
        }
        let arg = if other == long { arg } else { arg.alias(other) };
        let Some(value) = value else {
            return arg;
        };
        given.insert(long);
        arg.default_value(value)
    });
    match wrong {
        Some(wrong) => Err(wrong),
        None => Ok((command, given)),
    }
}

/// Joins the first value that begins with a dash and has a blank to its option, because argparse
/// takes such a word for a value.
fn with_blank_joined(words: &[OsString]) -> Option<Vec<OsString>> {
    let is_dashed = |word: &OsString| word.as_bytes().starts_with(b"-");
    let at = words.windows(2).position(|pair| {
        is_dashed(&pair[0]) && is_dashed(&pair[1]) && pair[1].as_bytes().contains(&b' ')
    })?;
    let mut words = words.to_vec();
    let value = words.remove(at + 1);
    words[at].push("=");
    words[at].push(value);
    Some(words)
}

/// Returns the text of `--help`: the commands, and the names of all options.
pub fn short_help() -> String {
    commands::screen(&Cli::command())
}

/// Returns the text of `rrun help options`, which explains the options of the launcher.
pub fn help() -> String {
    with_examples(Cli::command(), commands::examples(USERS_PROGRAM))
        .render_help()
        .to_string()
}

/// The variables with which the launcher was started, as a value, so that decisions about them can
/// be tested.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    pub(crate) variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// Returns the environment of this process.
    pub fn inherited() -> Self {
        std::env::vars_os().collect()
    }

    /// Returns the value of `name`, which may be empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        Some(self.variables.get(OsStr::new(name))?)
    }

    /// Returns the value of `name` if it is not empty.
    pub fn non_empty(&self, name: &str) -> Option<&OsStr> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Returns the value of `name` as text, which may be empty.
    pub fn value(&self, name: &str) -> Option<String> {
        self.get(name)
            .map(|value| value.to_string_lossy().into_owned())
    }

    /// Returns the value of `name` as text, if it is not empty.
    pub fn text(&self, name: &str) -> Option<String> {
        self.value(name).filter(|value| !value.is_empty())
    }

    /// Returns the GPUs that CUDA shows, of which there may be none; `None` for all.
    pub fn visible_devices(&self) -> Option<Cow<'_, str>> {
        self.get("CUDA_VISIBLE_DEVICES").map(OsStr::to_string_lossy)
    }

    /// Returns whether `name` is set, even to an empty value.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let variables = variables.into_iter();
        Self {
            variables: variables
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
