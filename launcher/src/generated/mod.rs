//! Files that are generated from the declarations of all commands: completions for shells, and man
//! pages.

pub mod completion;
pub mod man;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use jobs::eval_args::EvalArgs;
use jobs::policies::PolicyType;
use jobs::serve_args::ServeArgs;

use crate::cli::Cli;
use crate::cli::commands::names;
use crate::tools;

/// The word after `rrun help` for the options of the launcher.
const OPTIONS: &str = "options";

/// Returns `rrun` with all commands as subcommands, which they are not for its parser.
pub fn whole() -> Command {
    let mut tools = tools::commands();
    tools.sort_by_key(|tool| names().position(|name| name == tool.get_name()));
    let subcommands = [EvalArgs::command(), ServeArgs::command()];
    let whole = Cli::command().disable_help_subcommand(true);
    subcommands
        .into_iter()
        .chain(tools)
        .map(with_types)
        .map(with_help)
        .fold(whole, Command::subcommand)
}

/// Returns the command `help`, whose argument is a command.
fn help() -> Command {
    let topics = PossibleValuesParser::new(names().chain([OPTIONS]));
    let help = Command::new("help").about("Print examples and options of a command");
    help.arg(Arg::new("COMMAND").value_parser(topics))
}

/// Completes the argument of `list` with the policy types, which the parser takes as any text to
/// suggest one.
fn with_types(command: Command) -> Command {
    if command.get_name() != "list" {
        return command;
    }
    let types = PossibleValuesParser::new(PolicyType::names());
    command.mut_arg("name", |arg| arg.value_parser(types))
}

/// Adds `--help`, which the launcher's own declaration keeps its subcommands from having.
fn with_help(command: Command) -> Command {
    let help = Arg::new("help").short('h').long("help");
    let command = command.disable_help_flag(true);
    command.arg(help.action(ArgAction::Help).help("Print help"))
}
