//! `--print-completion`: prints the script by which a shell completes `rrun`'s options.

use clap::Command;
use clap_complete::Shell;
use clap_complete::generate;

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
    let mut script = Vec::new();
    generate(generator, &mut command, "rrun", &mut script);
    Ok(String::from_utf8_lossy(&script).into_owned())
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
    fn another_shell_is_refused() {
        let text = "invalid choice: 'ksh' (choose from 'bash', 'zsh', 'tcsh', 'fish')";
        let err = script("ksh", Cli::command()).unwrap_err();
        assert_eq!(err.to_string(), text);
    }
}
