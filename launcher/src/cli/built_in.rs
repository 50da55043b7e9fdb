//! The built-in words of `rrun`, which name no file: its programs, its tools, and `help`.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use jobs::known::nearest;
use jobs::serve_args::{TOKEN_VARIABLE, take_token};
use jobs::shell::quoted;

use crate::cli::Cli;

/// Built-in programs that run in ranks.
pub const PROGRAMS: [&str; 2] = ["eval", "serve"];

/// Tools, which launch nothing.
pub const TOOLS: [&str; 8] = [
    "compare", "demo", "doctor", "fit", "merge", "policies", "report", "verify",
];

/// Returns the names of the programs and tools.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROGRAMS.into_iter().chain(TOOLS)
}

/// Replaces `help` by `--help`, and `help eval` by `eval --help`. Returns other words unchanged,
/// and all words if a file named `help` exists.
pub fn without_help(words: Vec<OsString>) -> Vec<OsString> {
    if words.first().is_none_or(|word| word != "help") || Path::new("help").exists() {
        return words;
    }
    let about = words
        .get(1)
        .and_then(|word| names().find(|name| word == name));
    about
        .into_iter()
        .chain(["--help"])
        .map(OsString::from)
        .collect()
}

/// Returns the built-in word that a misspelt program probably means: for a plain word that is
/// similar enough.
pub fn meant_by(program: &OsStr) -> Option<&'static str> {
    let word = program
        .to_str()
        .filter(|word| !word.contains(['/', '.']) && !Path::new(word).exists())?;
    nearest(word, &names().collect::<Vec<_>>())
}

/// Returns the same command with the token of `serve` in its environment instead of its words,
/// which every user of the machine can read; `None` if the words contain no token. Ranks inherit
/// both.
pub fn with_token_in_environment(cli: &Cli, words: &[OsString]) -> Option<Command> {
    let (left, token) = take_token(&cli.args).filter(|_| cli.built_in() == Some("serve"))?;
    let before = &words[..words.len().checked_sub(cli.args.len())?];
    let mut command = Command::new(std::env::current_exe().ok()?);
    command
        .arg0(std::env::args_os().next()?)
        .args(before)
        .args(left)
        .env(TOKEN_VARIABLE, token);
    Some(command)
}

/// Returns the command that resumes the evaluation in a run folder with the same options of the
/// launcher, for a shell.
pub fn resume_command(cli: &Cli, words: &[OsString], folder: &Path) -> Option<String> {
    let before = &words[..words.len().checked_sub(cli.args.len())?];
    let before = before.iter().map(OsString::as_os_str);
    let all = [OsStr::new("rrun")]
        .into_iter()
        .chain(before)
        .chain([OsStr::new("--resume"), folder.as_os_str()]);
    let quoted: Vec<_> = all.map(|word| quoted(&word.to_string_lossy())).collect();
    Some(quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Vec<OsString> {
        without_help(words.iter().map(OsString::from).collect())
    }

    fn parsed(words: &[OsString]) -> Cli {
        match crate::cli::parse(words.to_vec(), &crate::cli::Environment::default()) {
            Ok(crate::cli::CliRequest::Launch(cli)) => *cli,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_token_of_a_server_moves_into_the_environment_with_all_other_words_as_they_were() {
        let words = [
            "--nproc-per-node",
            "2",
            "serve",
            "--policy",
            "x",
            "--api-token",
            "s3cret",
            "--port",
            "1",
        ];
        let words = words.map(OsString::from);
        let command = with_token_in_environment(&parsed(&words), &words).unwrap();
        let left: Vec<_> = command.get_args().collect();
        assert_eq!(
            left,
            [
                "--nproc-per-node",
                "2",
                "serve",
                "--policy",
                "x",
                "--port",
                "1"
            ]
        );
        let variables: Vec<_> = command.get_envs().collect();
        assert_eq!(
            variables,
            [(OsStr::new("RRUN_API_TOKEN"), Some(OsStr::new("s3cret")))]
        );
        let other = ["x.py", "--api-token", "s3cret"].map(OsString::from);
        assert!(
            with_token_in_environment(&parsed(&other), &other).is_none(),
            "a program of the user's"
        );
    }

    #[test]
    fn the_command_that_resumes_has_the_options_of_the_launcher() {
        let words = [
            "--nproc-per-node",
            "2",
            "eval",
            "--jobs",
            "a.json",
            "--seed=7",
        ];
        let words = words.map(OsString::from);
        let command = |folder: &str| resume_command(&parsed(&words), &words, Path::new(folder));
        assert_eq!(
            command("outputs/tonight").unwrap(),
            "rrun --nproc-per-node 2 eval --resume outputs/tonight"
        );
        assert!(
            command("it's my run")
                .unwrap()
                .ends_with(r"--resume 'it'\''s my run'")
        );
    }

    #[test]
    fn help_is_no_script() {
        assert_eq!(read(&["help"]), ["--help"]);
        assert_eq!(read(&["help", "eval"]), ["eval", "--help"]);
        assert_eq!(read(&["help", "me"]), ["--help"]);
        assert_eq!(read(&["train.py", "help"]), ["train.py", "help"]);
    }

    #[test]
    fn a_misspelt_word_is_known_and_a_script_is_left_alone() {
        let meant = |word: &str| meant_by(OsStr::new(word));
        assert_eq!(
            [meant("evall"), meant("sevre"), meant("reprot")],
            [Some("eval"), Some("serve"), Some("report")]
        );
        assert_eq!(
            [
                meant("train.py"),
                meant("./evall"),
                meant("train"),
                meant("src")
            ],
            [None; 4]
        );
    }
}
