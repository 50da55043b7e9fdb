//! Which options of the command line `--resume` takes over.

use std::collections::BTreeMap;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory as _};

use crate::eval_args::EvalArgs;

/// What `--resume` does not take over: it names the run, or what differs from start to start.
const OF_ONE_START: &[&str] = &[
    "jobs",
    "config",
    "set",
    "output",
    "resume",
    "accept-changed-jobs",
    "trust-plan",
    "quick",
    "num-envs",
];

/// Headings whose options `--resume` does not take over either, because they name places, control
/// the output, or send results elsewhere.
const HEADINGS_OF_ONE_START: &[&str] = &["Devices", "Output", TRACKING];

/// Heading of the options about trackers.
const TRACKING: &str = "Tracking";

/// Returns whether `--resume` takes over the option with this long name.
pub(crate) fn is_taken_over(name: &str) -> bool {
    EvalArgs::command()
        .get_arguments()
        .any(|option| option.get_long() == Some(name) && !is_of_one_start(option))
}

fn is_of_one_start(option: &Arg) -> bool {
    let is_under = |heading: &str| HEADINGS_OF_ONE_START.contains(&heading);
    option.get_help_heading().is_some_and(is_under)
        || option
            .get_long()
            .is_some_and(|name| OF_ONE_START.contains(&name))
}

/// Returns the options that were given on the command line and that `--resume` takes over.
pub(super) fn taken_over(command: &Command, matches: &ArgMatches) -> BTreeMap<String, String> {
    let options = command.get_arguments();
    let taken_over = options.filter(|option| !is_of_one_start(option));
    taken_over
        .filter_map(|option| given(option, matches))
        .collect()
}

/// Returns the words of the options about trackers.
pub(super) fn tracking_words(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let options = command.get_arguments();
    let tracking = options.filter(|option| option.get_help_heading() == Some(TRACKING));
    let given = tracking.filter_map(|option| given(option, matches));
    given.map(|(name, value)| word(&name, &value)).collect()
}

/// Returns an option with its value as a word of a command line; the value of a flag is empty.
pub(crate) fn word(name: &str, value: &str) -> String {
    match value {
        "" => format!("--{name}"),
        value => format!("--{name}={value}"),
    }
}

/// Returns the name and value of an option that was given on the command line.
fn given(option: &Arg, matches: &ArgMatches) -> Option<(String, String)> {
    let (id, name) = (option.get_id().as_str(), option.get_long()?);
    let values = matches.try_get_raw(id).ok()?;
    (matches.value_source(id)? == ValueSource::CommandLine).then_some(())?;
    let takes_values = option.get_action().takes_values();
    let values = values.into_iter().flatten().filter(|_| takes_values);
    let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
    Some((name.to_owned(), values.join(",")))
}
