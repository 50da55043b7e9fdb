//! What is generated from the declarations of all commands: completions for shells, and man pages.

use std::path::Path;

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use clap_complete::{Shell, generate};
use jobs::eval_args::EvalArgs;
use jobs::policies::PolicyType;
use jobs::serve_args::ServeArgs;

use crate::cli::Cli;
use crate::cli::commands::names;
use crate::tools;

/// The word after `rrun help` for the options of the launcher.
const OPTIONS: &str = "options";

/// Returns the script by which a shell completes the commands of `rrun`, their options and those of
/// the launcher.
pub fn completion(shell: Shell) -> String {
    let mut command = whole().subcommand(help());
    if shell == Shell::Zsh {
        // Beside a positional word, it does not see which command is given.
        let options = command.get_arguments().filter(|arg| !arg.is_positional());
        command = Command::new("rrun")
            .disable_help_flag(true)
            .args(options.cloned())
            .subcommands(command.get_subcommands().cloned());
    }
    let mut script = Vec::new();
    generate(shell, &mut command, "rrun", &mut script);
    let script = String::from_utf8_lossy(&script);
    // The first word may be a file, too.
    let commands = r#"":: :_rrun_commands""#;
    script.replacen(commands, r#"":: :{ _rrun_commands; _files }""#, 1)
}

/// Writes the man pages of `rrun` and of each command into a folder, which is made if there is none.
///
/// # Errors
/// Returns an error if the folder or a page cannot be written.
pub fn write_man(folder: &Path) -> anyhow::Result<()> {
    let written = std::fs::create_dir_all(folder);
    let written = written.and_then(|()| clap_mangen::generate_to(whole(), folder));
    written.with_context(|| format!("cannot write man pages into `{}`", folder.display()))
}

/// Returns `rrun` with all commands as subcommands, which they are not for its parser.
fn whole() -> Command {
    let mut tools = tools::commands();
    tools.sort_by_key(|tool| names().position(|name| name == tool.get_name()));
    let subcommands = [EvalArgs::command(), ServeArgs::command()];
    let whole = Cli::command().disable_help_subcommand(true);
    subcommands
        .into_iter()
        .chain(tools)
        .map(with_types)
        .map(as_subcommand)
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

/// Adds what the parser of a command does not know: that its words follow `rrun`, and `--help`, which
/// the launcher's own declaration keeps its subcommands from having.
fn as_subcommand(command: Command) -> Command {
    let words = format!("rrun {}", command.get_name());
    let help = Arg::new("help").short('h').long("help");
    let command = command.bin_name(words).disable_help_flag(true);
    command.arg(help.action(ArgAction::Help).help("Print help"))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::cli::commands::{COMMANDS, USERS_PROGRAM};

    #[test]
    fn every_shell_learns_every_option_and_command() {
        for shell in Shell::value_variants().iter().copied() {
            let script = completion(shell);
            let words = [
                "nproc-per-node",
                "rdzv-endpoint",
                "slurm", // of the launcher
                "record-format",
                "front-port",
                "rerun-seed", // of eval, serve and verify
                "reproduce",
                "python",
            ];
            let has_values = matches!(shell, Shell::Bash | Shell::Zsh);
            let values = ["torchscript", "options"]
                .into_iter()
                .filter(|_| has_values);
            for word in words.into_iter().chain(values) {
                assert!(script.contains(word), "{shell} lacks {word}: {script}");
            }
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("share/man1");
        write_man(&pages).unwrap();
        let text = |page: &str| std::fs::read_to_string(pages.join(page)).unwrap();
        for row in COMMANDS.iter().filter(|row| row.name != USERS_PROGRAM) {
            let page = text(&format!("rrun-{}.1", row.name));
            for part in [
                format!("\\fBrrun {}\\fR", row.name),
                "\\-\\-help".to_owned(),
            ] {
                assert!(page.contains(&part), "{part}: {page}");
            }
        }
        let first = text("rrun.1");
        for part in [
            "\\-\\-nproc\\-per\\-node",
            ".SH RENDEZVOUS",
            "rrun\\-verify(1)",
        ] {
            assert!(first.contains(part), "{part}: {first}");
        }
    }

    #[test]
    fn a_folder_that_is_a_file_is_refused_by_its_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let err = write_man(file.path()).unwrap_err().to_string();
        let told = format!("cannot write man pages into `{}`", file.path().display());
        assert_eq!(err, told);
    }
}
