//! `rrun … eval …` as the child of a tool, or in its place.
//!
//! A tool may be started in a step of SLURM or in a pod of an Indexed Job, or with torchrun's variables
//! set. A child that infers a launch of several nodes from them would wait for launchers that nobody
//! starts.

use std::env::{current_exe, vars_os};
use std::ffi::OsString;
use std::io;
use std::process::Command;

/// The word between the launcher's options and those of the evaluation.
const EVAL: &str = "eval";

/// Options with which a launch looks at no other node.
const HERE: [&str; 5] = ["--standalone", "--slurm", "off", "--kubernetes", "off"];

/// Prefix of the variables that set defaults of the launcher's options.
const PET: &[u8] = b"PET_";

/// Returns the command of an evaluation by `ranks` ranks on this node alone, whatever the environment
/// says of others, with what else the user says as in [`asked`].
pub(super) fn here(ranks: usize, words: &[OsString]) -> io::Result<Command> {
    let ours = HERE.into_iter().chain(["--nproc-per-node"]);
    let ours = ours.map(OsString::from).chain([ranks.to_string().into()]);
    let mut command = asked(&ours.chain(words.iter().cloned()).collect::<Vec<_>>())?;
    let names = vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.as_encoded_bytes().starts_with(PET)) {
        command.env_remove(name);
    }
    Ok(command)
}

/// Returns the command of an evaluation as the user says: `[LAUNCHER OPTIONS] [eval [EVAL OPTIONS]]`.
/// Options of the evaluation may follow.
pub(super) fn asked(words: &[OsString]) -> io::Result<Command> {
    let mut command = Command::new(current_exe()?);
    command.args(words);
    if !words.iter().any(|word| word == EVAL) {
        command.arg(EVAL);
    }
    Ok(command)
}

/// Returns the number that the user gives for an option, if it is one.
pub(super) fn number(words: &[OsString], option: &str) -> Option<usize> {
    let mut words = words.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        match word
            .strip_prefix(option)
            .map(|rest| rest.split_at_checked(1))
        {
            Some(None) => return words.next()?.parse().ok(),
            Some(Some(("=", value))) => return value.parse().ok(),
            _ => {}
        }
    }
    None
}

/// Returns whether the user gives an option, which then takes the place of ours.
pub(super) fn has(words: &[OsString], option: &str) -> bool {
    let is_it = |word: &str| word.split('=').next() == Some(option);
    words.iter().filter_map(|word| word.to_str()).any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_user_need_not_contain_eval() {
        let of = |text: &str| {
            let words: Vec<OsString> = text.split_whitespace().map(Into::into).collect();
            let command = asked(&words).unwrap();
            let words: Vec<_> = command
                .get_args()
                .map(|word| word.to_string_lossy())
                .collect();
            words.join(" ")
        };
        for (words, command) in [
            ("", "eval"),
            ("--nproc-per-node 2", "--nproc-per-node 2 eval"),
            ("eval --num-envs 4 --quiet", "eval --num-envs 4 --quiet"),
            (
                "--nproc-per-node 2 eval --no-video",
                "--nproc-per-node 2 eval --no-video",
            ),
        ] {
            assert_eq!(of(words), command);
        }
    }

    #[test]
    fn an_option_of_the_user_may_have_its_value_in_the_same_word() {
        let words = ["eval", "--num-envs=4", "--seed", "3"].map(OsString::from);
        assert!(has(&words, "--num-envs") && has(&words, "--seed"));
        assert!(!has(&words, "--num"));
        let numbers = ["--num-envs", "--seed", "--num"].map(|option| number(&words, option));
        assert_eq!(numbers, [Some(4), Some(3), None]);
    }
}
