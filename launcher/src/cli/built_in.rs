//! The built-in words of a command line, which name no file: programs, tools, and `help`.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use jobs::serve_args::{TOKEN_VARIABLE, take_token};
use jobs::shell::quoted;
use jobs::tracking::TrackingArgs;

use crate::cli::Cli;
use crate::cli::commands::{meant, names};

/// The variable by which `rrun demo` tells the launcher that it is to run the demo.
pub const DEMO_FOLDER: &str = "RRUN_DEMO";

/// Tools, which launch nothing.
pub const TOOLS: [&str; 15] = [
    "certify",
    "compare",
    "demo",
    "doctor",
    "fit",
    "leaderboard",
    "list",
    "merge",
    "policies",
    "report",
    "reproduce",
    "suite",
    "top",
    "verify",
    "watch",
];

/// What `rrun help …` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelpTopic {
    /// The commands, as `rrun --help`.
    Commands,
    /// The options of the launcher.
    Options,
    /// A command, as its own `--help`.
    Command(&'static str),
}

/// A word after `rrun help` that is no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no command `{word}`: {hint}")]
pub struct UnknownCommand {
    word: String,
    hint: String,
}

/// Returns what `rrun help …` asks for; `None` for other words, and if a file named `help` exists.
///
/// # Errors
/// Returns an error for a word that is no command.
pub fn help_topic(words: &[OsString]) -> Result<Option<HelpTopic>, UnknownCommand> {
    if words.first().is_none_or(|word| word != "help") || Path::new("help").is_file() {
        return Ok(None);
    }
    let Some(word) = words.get(1).map(|word| word.to_string_lossy()) else {
        return Ok(Some(HelpTopic::Commands));
    };
    if word == "help" || word.starts_with('-') {
        return Ok(Some(HelpTopic::Commands));
    }
    if word == "options" {
        return Ok(Some(HelpTopic::Options));
    }
    match names().find(|name| *name == word) {
        Some(name) => Ok(Some(HelpTopic::Command(name))),
        None => Err(UnknownCommand {
            hint: meant(&word).map_or_else(
                || "`rrun help` lists them".to_owned(),
                |name| format!("did you mean `rrun help {name}`?"),
            ),
            word: word.into_owned(),
        }),
    }
}

/// Returns the built-in word that a misspelt program probably means: for a plain word that is
/// similar enough, and no file.
pub fn meant_by(program: &OsStr) -> Option<&'static str> {
    let word = program
        .to_str()
        .filter(|word| !word.contains(['/', '.']) && !Path::new(word).exists())?;
    meant(word)
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
/// launcher, and the same trackers, for a shell.
pub fn resume_command(
    cli: &Cli,
    words: &[OsString],
    folder: &Path,
    tracking: &TrackingArgs,
) -> Option<String> {
    // `rrun demo` also sets how libtorch rounds.
    if std::env::var_os(DEMO_FOLDER).is_some() {
        return Some(format!("rrun demo {}", quoted(&folder.to_string_lossy())));
    }
    let before = &words[..words.len().checked_sub(cli.args.len())?];
    let before = before.iter().map(OsString::as_os_str);
    let all = [OsStr::new("rrun")]
        .into_iter()
        .chain(before)
        .chain([OsStr::new("--resume"), folder.as_os_str()]);
    let resumed = all.map(|word| quoted(&word.to_string_lossy()));
    let tracked = tracking.words().into_iter().map(|word| quoted(&word));
    Some(resumed.chain(tracked).collect::<Vec<_>>().join(" "))
}

/// Returns the command of a quick run without `--quick`, for a shell.
pub fn command_without_quick(words: &[OsString]) -> String {
    let kept = words.iter().filter(|word| *word != "--quick");
    let quoted: Vec<_> = std::iter::once("rrun".to_owned())
        .chain(kept.map(|word| quoted(&word.to_string_lossy())))
        .collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use jobs::tracking::Tracker;

    use super::*;

    #[test]
    fn the_command_of_the_whole_run_is_that_of_the_quick_one_without_its_option() {
        let words = [
            "--nproc-per-node",
            "2",
            "eval",
            "--jobs",
            "my jobs.json",
            "--quick",
        ];
        assert_eq!(
            command_without_quick(&words.map(OsString::from)),
            "rrun --nproc-per-node 2 eval --jobs 'my jobs.json'"
        );
    }

    fn topic(words: &[&str]) -> Result<Option<HelpTopic>, UnknownCommand> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        help_topic(&words)
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
        let tracked_by = |folder: &str, tracking: &TrackingArgs| {
            resume_command(&parsed(&words), &words, Path::new(folder), tracking)
        };
        let command = |folder: &str| tracked_by(folder, &TrackingArgs::default());
        assert_eq!(
            command("outputs/tonight").unwrap(),
            "rrun --nproc-per-node 2 eval --resume outputs/tonight"
        );
        assert!(
            command("it's my run")
                .unwrap()
                .ends_with(r"--resume 'it'\''s my run'")
        );
        let tracking = TrackingArgs {
            track: vec![Tracker::Wandb],
            track_name: Some("a b".to_owned()),
            ..TrackingArgs::default()
        };
        assert!(
            tracked_by("out", &tracking)
                .unwrap()
                .ends_with("--resume out --track wandb --track-name 'a b'")
        );
    }

    #[test]
    fn help_is_no_script() {
        assert_eq!(topic(&["help"]), Ok(Some(HelpTopic::Commands)));
        assert_eq!(topic(&["help", "--all"]), Ok(Some(HelpTopic::Commands)));
        assert_eq!(topic(&["help", "options"]), Ok(Some(HelpTopic::Options)));
        let eval = HelpTopic::Command("eval");
        assert_eq!(topic(&["help", "eval"]), Ok(Some(eval)));
        assert_eq!(topic(&["train.py", "help"]), Ok(None));
    }

    #[test]
    fn a_misspelt_command_after_help_is_refused_with_the_nearest_one() {
        let told = |word| topic(&["help", word]).unwrap_err().to_string();
        assert_eq!(
            told("evel"),
            "there is no command `evel`: did you mean `rrun help eval`?"
        );
        assert_eq!(
            told("me"),
            "there is no command `me`: `rrun help` lists them"
        );
    }

    #[test]
    fn a_misspelt_word_is_known_and_a_script_is_left_alone() {
        let meant = |word: &str| meant_by(OsStr::new(word));
        assert_eq!(
            ["evel", "sevre", "reprot", "hlep"].map(meant),
            ["eval", "serve", "report", "help"].map(Some)
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
