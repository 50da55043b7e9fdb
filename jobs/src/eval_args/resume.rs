//! Which options of the command line `--resume` takes over.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory as _};

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
    "lease",
    "lease-timeout",
];

/// Headings whose options `--resume` does not take over either, because they name places, control
/// the output, or send results elsewhere.
const HEADINGS_OF_ONE_START: &[&str] = &["Devices", "Output", "Tracking"];

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

/// Returns the name and value of an option that was given on the command line and that `--resume`
/// takes over.
pub(super) fn given(option: &Arg, matches: &ArgMatches) -> Option<(String, String)> {
    let (id, name) = (option.get_id().as_str(), option.get_long()?);
    if is_of_one_start(option) || matches.try_get_raw(id).is_err() {
        return None;
    }
    (matches.value_source(id)? == ValueSource::CommandLine).then_some(())?;
    let takes_values = option.get_action().takes_values();
    let values = matches
        .get_raw(id)
        .into_iter()
        .flatten()
        .filter(|_| takes_values);
    let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
    Some((name.to_owned(), values.join(",")))
}
