//! What clap's help and errors lack: examples, and what the user probably meant.

use std::ffi::{OsStr, OsString};
use std::ops::RangeBounds;
use std::path::Path;

use clap::builder::RangedU64ValueParser;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, ArgMatches, Command};

/// Command lines and what they do, for the head of a `--help`.
pub type Examples = &'static [(&'static str, &'static str)];

/// Headings of a command's help, each with the name of the first option under it.
pub type Headings = &'static [(&'static str, &'static str)];

/// Puts the options of a command, which come in their order, under headings, but those that have
/// one. For `mut_args` of clap.
pub fn under(headings: Headings) -> impl FnMut(Arg) -> Arg {
    let mut heading = None;
    move |arg| {
        let new = headings.iter().find(|(first, _)| arg.get_id() == first);
        heading = new.map(|(_, name)| *name).or(heading);
        match arg.get_help_heading() {
            None => arg.help_heading(heading),
            Some(_) => arg,
        }
    }
}

/// Puts examples between the usage and the options of a command's help. They must not contain
/// braces, which mark clap's own parts.
pub fn with_examples(command: Command, examples: Examples) -> Command {
    if examples.is_empty() {
        return command;
    }
    let heading = command.get_styles().get_header();
    let lines = example_lines(examples).join("\n  ");
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n\
         {heading}Examples:{heading:#}\n  {lines}\n\n{{all-args}}{{after-help}}"
    );
    command.help_template(template)
}

/// Returns one line per example, with the explanations below each other.
pub fn example_lines(examples: Examples) -> Vec<String> {
    let widths = examples.iter().map(|(line, _)| line.chars().count());
    let width = widths.max().unwrap_or(0);
    let line = |(line, what): &(&str, &str)| format!("{line:width$}  # {what}");
    examples.iter().map(line).collect()
}

/// Commands that run in ranks, before which options of the launcher are written.
const IN_RANKS: [&str; 2] = ["eval", "serve"];

/// Lets the options of a command take negative numbers as values, so that the error is about the
/// value, and not about an unknown option.
pub fn with_negative_values(command: Command) -> Command {
    command.mut_args(|arg| {
        if arg.get_action().takes_values() {
            arg.allow_negative_numbers(true)
        } else {
            arg
        }
    })
}

/// Parses a number of things that is within bounds. For `value_parser` of clap.
pub fn within(bounds: impl RangeBounds<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(bounds)
}

/// Parses the words after a command. `named` returns the option that a positional word would belong
/// to.
///
/// # Errors
/// Returns clap's error, also for `--help`, with a hint at what was meant.
pub fn parsed(
    command: Command,
    examples: Examples,
    words: &[OsString],
    named: impl Fn(&str) -> Option<String>,
) -> Result<ArgMatches, Error> {
    let mut command = with_examples(with_negative_values(command), examples);
    let name = std::iter::once(command.get_name().into());
    let words = name.chain(words.iter().map(|word| with_dashes(word)));
    let words: Vec<OsString> = words.collect();
    let matches = command.try_get_matches_from_mut(words);
    matches.map_err(|err| plain(err, &mut command, named))
}

/// Replaces underscores in the name of an option by dashes: `--a_b=c_d` becomes `--a-b=c_d`.
pub fn with_dashes(word: &OsStr) -> OsString {
    let Some(text) = word.to_str().filter(|text| text.starts_with("--")) else {
        return word.to_owned();
    };
    match text.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")).into(),
        None => text.replace('_', "-").into(),
    }
}

/// Returns the error with a hint at what was meant, for a positional word and for a negative
/// number. `named` returns the option that such a word would belong to.
pub fn plain(
    mut err: Error,
    command: &mut Command,
    named: impl Fn(&str) -> Option<String>,
) -> Error {
    let text = |kind| match err.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (argument, value) = (
        text(ContextKind::InvalidArg),
        text(ContextKind::InvalidValue),
    );
    let optionless = |word: &str| {
        named(word).map(|option| format!("`{word}` has no option; write `{option} {word}`"))
    };
    let reason = match (err.kind(), argument, value) {
        (ErrorKind::UnknownArgument, Some(word), _) if !word.starts_with('-') => optionless(word),
        // A positional argument that cannot be read, where a file was written without its option.
        (ErrorKind::ValueValidation, Some(argument), Some(word)) if argument.starts_with('[') => {
            optionless(word)
        }
        (ErrorKind::ValueValidation, Some(option), Some(value))
            if value.parse::<i64>().is_ok_and(|n| n < 0) =>
        {
            let option = option.split(' ').next().unwrap_or(option);
            Some(format!(
                "{option} is {value}, expected a whole number from 0"
            ))
        }
        _ => None,
    };
    if let Some(reason) = reason {
        return command.error(ErrorKind::ValueValidation, reason);
    }
    let name = command.get_name();
    if err.kind() == ErrorKind::UnknownArgument && IN_RANKS.contains(&name) {
        let tip = format!("an option of the launcher goes before `{name}`: rrun OPTION {name} …");
        let tip = ContextValue::StyledStrs(vec![tip.into()]);
        err.insert(ContextKind::Suggested, tip);
    }
    err
}

/// Returns the option of `eval` and `fit` that takes a file of this kind.
pub fn option_of_file(word: &str) -> Option<String> {
    let ending = Path::new(word)
        .extension()
        .and_then(|ending| ending.to_str());
    match ending {
        Some("yaml" | "yml") => Some("--config".to_owned()),
        Some("json") => Some("--jobs".to_owned()),
        _ if Path::new(word).join("plan.json").is_file() => Some("--resume".to_owned()),
        _ => None,
    }
}
