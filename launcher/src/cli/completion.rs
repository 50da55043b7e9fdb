//! `--print-completion`: prints the script by which a shell completes `rrun`'s options and built-in
//! words, and the policy types of `rrun policies`.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::Shell;
use clap_complete::generate;
use jobs::policies::PolicyType;

use crate::cli::built_in;
use crate::cli::error::ValueError;

/// The supported shells: torchrun's in its order, and fish.
const SHELLS: [&str; 4] = ["bash", "zsh", "tcsh", "fish"];

/// Returns the script for `shell`.
///
/// # Errors
/// Returns argparse's message for an unknown shell.
pub fn script(shell: &str, mut command: Command) -> Result<String, ValueError> {
    let generator = match shell {
        "bash" => Shell::Bash,
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        "tcsh" => return Ok(tcsh(&command)),
        _ => return Err(ValueError::choice(shell, &SHELLS)),
    };
    command = built_in::names().fold(command, with_word);
    let mut script = Vec::new();
    generate(generator, &mut command, "rrun", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if generator == Shell::Fish {
        // clap_complete generates the values of options for fish, and none of positional words.
        let types = PolicyType::names().join(" ");
        script += &format!(
            "complete -c rrun -n \"__fish_seen_subcommand_from policies\" -f -a \"{types}\"\n"
        );
    }
    Ok(script)
}

/// Adds a built-in word as a subcommand, which it is not for the parser.
fn with_word(command: Command, name: &'static str) -> Command {
    let word = Command::new(name);
    command.subcommand(match name {
        "policies" => {
            let types = PossibleValuesParser::new(PolicyType::names());
            word.arg(Arg::new("TYPE").value_parser(types))
        }
        _ => word,
    })
}

/// Returns the one-line script for tcsh: options after a dash, files elsewhere.
fn tcsh(command: &Command) -> String {
    let longs: Vec<&str> = command
        .get_arguments()
        .filter_map(|arg| arg.get_long())
        .collect();
    let shorts: String = command
        .get_arguments()
        .filter_map(|arg| arg.get_short())
        .collect();
    let shorts: Vec<String> = shorts.chars().map(String::from).collect();
    format!(
        "complete rrun 'c/--/({})/' 'c/-/({})/' 'p/*/f/'\n",
        longs.join(" "),
        shorts.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_shell_learns_every_option() {
        for shell in SHELLS {
            let script = script(shell, Cli::command()).expect("a known shell");
            let is_known = |name: &str| script.contains(name);
            assert!(
                ["nproc-per-node", "rdzv-endpoint", "slurm"]
                    .into_iter()
                    .all(is_known),
                "{shell}: {script}"
            );
        }
    }

    #[test]
    fn built_in_words_and_policy_types_are_completed() {
        for shell in ["bash", "zsh", "fish"] {
            let script = script(shell, Cli::command()).expect("a known shell");
            for word in ["merge", "policies", "torchscript", "python"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn another_shell_is_refused() {
        let text = "invalid choice: 'ksh' (choose from 'bash', 'zsh', 'tcsh', 'fish')";
        let err = script("ksh", Cli::command()).unwrap_err();
        assert_eq!(err.to_string(), text);
    }
}
