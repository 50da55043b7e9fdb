//! Tools that read the files of a run, check one in advance, or say what a job may contain. Ranks run
//! only in evaluations that they start; they need no store and link no libtorch.
//!
//! ```text
//! rrun demo [DIR]         evaluate what is installed: starts an evaluation in its place
//! rrun report DIR…        write the report again, from plan and journals; merge several runs
//! rrun verify DIR         check that everything exists and is complete, or a certificate
//! rrun certify DIR        write a certificate of a run, which others can check
//! rrun compare A B        compare two policies on the same episodes
//! rrun doctor             check this machine: GPUs, libraries, disk, limits, simulators
//! rrun reproduce CERT     run the jobs of a certificate: starts an evaluation in its place
//! rrun fit --jobs FILE    check whether an evaluation fits into the memory of the GPUs
//! rrun list [NAME]        list environments, policies, examples and suites, or describe one
//! rrun suite NAME         write the jobs file of a known benchmark
//! rrun top DIR            show a run that is under way
//! rrun watch              evaluate every checkpoint of a training while it trains
//! ```
//! These words are built in, like `eval`; `./report` is a file. They come first, before any option
//! of the launcher.
//!
//! All of them end with the exit codes of [`crate::verdict`]: 0 if all is well, 1 if something was
//! found, 3 if it cannot be told, 2 after an error.

mod again;
mod certify;
mod compare;
mod demo;
mod doctor;
mod evaluation;
mod fit;
mod list;
mod report;
mod reproduce;
mod suite;
mod top;
mod verify;
mod watch;

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use ::report::{Journals, Merged, Rates};
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use jobs::launch::holders;
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::printable::{printable, printable_json, printable_line};
use jobs::refusal::Refusal;
use jobs::usage::{option_of_file, plain, with_dashes, with_examples, with_negative_values};
use serde::Serialize;

use crate::cli::commands::{examples, is_tool, tools};
use crate::verdict::ERROR;

/// Number of lines from the end of a failed run's output that are read.
const LAST_LINES: usize = 20;

#[derive(Debug, Parser)]
#[command(
    name = "rrun",
    bin_name = "rrun",
    max_term_width = 100,
    disable_help_subcommand = true
)]
enum Tool {
    Certify(Box<certify::CertifyArgs>),
    Compare(compare::CompareArgs),
    Demo(demo::DemoArgs),
    Doctor(doctor::DoctorArgs),
    Fit(Box<fit::FitArgs>),
    List(list::ListArgs),
    Report(report::ReportArgs),
    Reproduce(Box<reproduce::ReproduceArgs>),
    Suite(Box<suite::SuiteArgs>),
    Top(top::TopArgs),
    Verify(Box<verify::VerifyArgs>),
    Watch(Box<watch::WatchArgs>),
}

impl Tool {
    /// Parses the words, with `-` or `_` in options as the launcher and `eval` do.
    fn read(words: &[OsString]) -> Result<Self, clap::Error> {
        let mut command = tools().fold(Self::command(), |command, name| {
            command.mut_subcommand(name, |tool| {
                with_examples(with_negative_values(tool), examples(name))
            })
        });
        command = command.mut_subcommand("fit", fit::of_memory);
        let dashed = words.iter().map(|word| with_dashes(word));
        let matches =
            command.try_get_matches_from_mut(std::iter::once(OsString::from("rrun")).chain(dashed));
        let tool = words
            .first()
            .and_then(|word| command.find_subcommand_mut(word));
        let matches = match (matches, tool) {
            (Err(err), Some(tool)) => Err(plain(err, tool, option_of_file)),
            (matches, _) => matches,
        };
        Self::from_arg_matches(&matches?)
    }
}

/// Returns the declarations of all tools.
pub fn commands() -> Vec<clap::Command> {
    Tool::command().get_subcommands().cloned().collect()
}

/// Parses the words of a tool, and forgets them.
///
/// # Errors
/// Returns clap's error.
#[cfg(test)]
pub(crate) fn check(words: &[OsString]) -> Result<(), clap::Error> {
    Tool::read(words).map(drop)
}

/// Returns whether a command line, without the command's name, calls a tool.
pub fn is_asked(words: &[OsString]) -> bool {
    words
        .first()
        .and_then(|word| word.to_str())
        .is_some_and(is_tool)
}

/// Runs the tool that the command line calls.
pub fn run(words: Vec<OsString>) -> ExitCode {
    let done = match Tool::read(&words) {
        Ok(Tool::Certify(args)) => certify::run(&args),
        Ok(Tool::Compare(args)) => compare::run(&args),
        Ok(Tool::Demo(args)) => demo::run(&args),
        Ok(Tool::Doctor(args)) => doctor::run(&args),
        Ok(Tool::Fit(args)) => fit::run(&args),
        Ok(Tool::List(args)) => list::run(&args),
        Ok(Tool::Report(args)) => report::run(&args),
        Ok(Tool::Reproduce(args)) => reproduce::run(&args),
        Ok(Tool::Suite(args)) => suite::run(&args),
        Ok(Tool::Top(args)) => top::run(&args),
        Ok(Tool::Verify(args)) => verify::run(&args),
        Ok(Tool::Watch(args)) => watch::run(&args),
        Err(usage) => {
            // Help goes to stdout, everything else to stderr. A closed pipe is not an error.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
    };
    done.unwrap_or_else(|err| {
        eprintln!("rrun: error: {}", printable(&format!("{err:#}")));
        ExitCode::from(ERROR)
    })
}

/// Opens the run in a folder.
fn open(path: &OsStr) -> anyhow::Result<(RunFolder, RunPlan)> {
    let folder = RunFolder::new(path.as_ref());
    if !folder.plan().exists() {
        let wrong = match folder.root().exists() {
            true => "is not a run folder: it has no plan.json",
            false => "does not exist",
        };
        let name = path.to_string_lossy();
        return Err(Refusal::new(format_args!("`{name}` {wrong}")).into());
    }
    let plan = RunPlan::read(&folder)?;
    Ok((folder, plan))
}

/// Prints a text to standard output, with control characters escaped: names and messages in a run
/// folder must not control the terminal.
fn print(text: impl Display) -> io::Result<()> {
    write(&printable(&text.to_string()))
}

/// Prints a text as a single line, whatever names it contains.
fn print_line(text: impl Display) -> io::Result<()> {
    write(&printable_line(&text.to_string()))
}

/// Prints a value as JSON, or else a text about it.
fn print_as<T: Serialize>(
    is_json: bool,
    value: &T,
    text: impl FnOnce() -> String,
) -> io::Result<()> {
    match is_json {
        true => print_json(&serde_json::to_string_pretty(value)?),
        false => print(text()),
    }
}

/// Prints JSON; escaping does not change its meaning.
fn print_json(text: &str) -> io::Result<()> {
    write(&printable_json(text))
}

/// Writes to standard output. A closed pipe is not an error.
fn write(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(err) if err.kind() != io::ErrorKind::BrokenPipe => Err(err),
        _ => Ok(()),
    }
}

/// Reads the journals of a run, and notes which launches are alive, as soon as that is certain.
fn merged(folder: &RunFolder, plan: RunPlan) -> anyhow::Result<Merged> {
    // Before the journals: those of a launch that has ended since are then complete.
    let living = holders(folder, |why| eprintln!("rrun: {why}"));
    let mut journals = Journals::of(folder)?;
    journals.note_launches(&living);
    Ok(Merged::new(plan, journals)?)
}

/// Returns the line that says who writes into the folder, and how far the run is.
fn under_way(writer: &str, so_far: &Rates) -> String {
    let expected = so_far
        .expected
        .map_or_else(|| "?".to_owned(), |expected| expected.to_string());
    let done = so_far.episodes;
    format!("the run is under way: {writer}; {done} of {expected} episodes so far")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_under_way_has_some_of_its_episodes() {
        let mut so_far = Rates {
            episodes: 3,
            expected: Some(12),
            ..Rates::default()
        };
        assert_eq!(
            under_way("process 7 on node1", &so_far),
            "the run is under way: process 7 on node1; 3 of 12 episodes so far"
        );
        so_far.expected = None;
        assert!(under_way("x", &so_far).ends_with("; 3 of ? episodes so far"));
    }
}
