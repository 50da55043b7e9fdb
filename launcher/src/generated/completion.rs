//! `--print-completion`: the script by which a shell completes the commands of `rrun`, their
//! options and those of the launcher, and the policy types of `rrun list`.

use clap::Command;
use clap_complete::{Shell, generate};

use crate::cli::options::CompletionShell;
use crate::generated::{help, whole};

/// Returns the script for `shell`.
pub fn script(shell: CompletionShell) -> String {
    let command = whole().subcommand(help());
    match shell {
        CompletionShell::Bash => bash(command),
        CompletionShell::Zsh => zsh(&command),
        CompletionShell::Tcsh => tcsh(&command),
        CompletionShell::Fish => fish(command),
    }
}

fn generated(shell: Shell, mut command: Command) -> String {
    let mut script = Vec::new();
    generate(shell, &mut command, "rrun", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Returns the values that a positional word of a command may have, if they are known.
fn words_of(command: &Command) -> Option<String> {
    let values = command.get_positionals().next()?.get_possible_values();
    let names: Vec<_> = values.iter().map(|value| value.get_name()).collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// The script of clap_complete, which offers options where a command or a file is more likely: for
/// an empty word. At the first word it becomes a command; after a command that takes files nothing,
/// so that bash falls back to files.
fn bash(command: Command) -> String {
    let commands: Vec<Command> = command.get_subcommands().cloned().collect();
    let names: Vec<&str> = commands.iter().map(Command::get_name).collect();
    let takes_files = |command: &&Command| {
        command.get_positionals().next().is_some() && words_of(command).is_none()
    };

    let first = format!(
        r#"[[ -z "${{cur}}" && ${{COMP_CWORD}} -eq 1 ]] && COMPREPLY=({}) && return 0"#,
        names.join(" ")
    );
    let script = with_line(&generated(Shell::Bash, command), "rrun", &first);
    let files = r#"[[ -z "${cur}" && "${prev}" != -* ]] && return 0"#;
    commands
        .iter()
        .filter(takes_files)
        .fold(script, |script, command| {
            let function = format!("rrun__subcmd__{}", command.get_name());
            with_line(&script, &function, files)
        })
}

/// Adds a line at the head of the case of a command.
fn with_line(script: &str, command: &str, line: &str) -> String {
    let case = format!("        {command})\n            ");
    script.replacen(
        &format!("{case}opts="),
        &format!("{case}{line}\n            opts="),
        1,
    )
}

/// The script of clap_complete for the options and commands alone: beside a positional word, it
/// does not see which command is given. The first word may be a file, too.
fn zsh(command: &Command) -> String {
    let options = command.get_arguments().filter(|arg| !arg.is_positional());
    let bare = Command::new("rrun")
        .disable_help_flag(true)
        .args(options.cloned())
        .subcommands(command.get_subcommands().cloned());

    let script = generated(Shell::Zsh, bare);
    let commands = r#"":: :_rrun_commands""#;
    script.replacen(commands, r#"":: :{ _rrun_commands; _files }""#, 1)
}

/// The script of clap_complete, which has the values of options and none of positional words.
fn fish(command: Command) -> String {
    let mut lines = String::new();
    for command in command.get_subcommands() {
        if let Some(words) = words_of(command) {
            let name = command.get_name();
            lines += &format!(
                "complete -c rrun -n \"__fish_rrun_using_subcommand {name}\" -f -a \"{words}\"\n"
            );
        }
    }
    generated(Shell::Fish, command) + &lines
}

/// Returns the one-line script for tcsh, which cannot see the command before an option: it offers
/// the options of all.
fn tcsh(command: &Command) -> String {
    let all = || std::iter::once(command).chain(command.get_subcommands());
    let options = || all().flat_map(Command::get_arguments);
    let mut longs: Vec<&str> = options().filter_map(|arg| arg.get_long()).collect();
    longs.sort_unstable();
    longs.dedup();
    let shorts = command.get_arguments().filter_map(|arg| arg.get_short());
    let shorts: Vec<String> = shorts.map(String::from).collect();

    let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    let mut rules = vec![
        format!("'c/--/({})/'", longs.join(" ")),
        format!("'c/-/({})/'", shorts.join(" ")),
    ];
    for command in command.get_subcommands() {
        let words = words_of(command);
        rules.extend(words.map(|words| format!("'n/{}/({words})/'", command.get_name())));
    }
    rules.push(format!("'p/1/({})/'", names.join(" ")));
    format!("complete rrun {} 'p/*/f/'\n", rules.join(" "))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_learns_every_option_and_command() {
        for shell in CompletionShell::value_variants().iter().copied() {
            let script = script(shell);
            let words = [
                "nproc-per-node",
                "rdzv-endpoint",
                "slurm", // of the launcher
                "record-format",
                "front-port",
                "rerun-seed", // of eval, serve and verify
                "reproduce",
                "torchscript",
                "python",
                "options",
            ];
            for word in words {
                assert!(script.contains(word), "{shell:?} lacks {word}: {script}");
            }
        }
    }
}
