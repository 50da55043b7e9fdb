//! The built-in words of a command line, which name no file: programs, tools, and `help`.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::bail;
use jobs::printable::quoted;
use jobs::serve_args::{TOKEN_VARIABLE, take_token};
use jobs::tracking::TrackingArgs;

use crate::cli::Cli;
use crate::cli::commands::{meant, names};

/// The variable by which `rrun demo` tells the launcher that it is to run the demo.
pub const DEMO_FOLDER: &str = "RRUN_DEMO";

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

/// Returns what `rrun help …` asks for; `None` for other words, and if a file named `help` exists.
///
/// # Errors
/// Returns an error for a word that is no command.
pub fn help_topic(words: &[OsString]) -> anyhow::Result<Option<HelpTopic>> {
    if words.first().is_none_or(|word| word != "help") || Path::new("help").is_file() {
        return Ok(None);
    }
    let word = words
        .get(1)
        .map_or("help".into(), |word| word.to_string_lossy());
    if word == "help" || word.starts_with('-') {
        return Ok(Some(HelpTopic::Commands));
    }
    if word == "options" {
        return Ok(Some(HelpTopic::Options));
    }
    if let Some(name) = names().find(|name| *name == word) {
        return Ok(Some(HelpTopic::Command(name)));
    }
    match meant(&word) {
        Some(name) => bail!("there is no command `{word}`: did you mean `rrun help {name}`?"),
        None => bail!("there is no command `{word}`: `rrun help` lists them"),
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
/// launcher, the same page and the same trackers, for a shell.
pub fn resume_command(
    cli: &Cli,
    words: &[OsString],
    folder: &Path,
    page: Option<SocketAddr>,
    tracking: &TrackingArgs,
) -> Option<String> {
    // `rrun demo` also sets how libtorch rounds.
    if std::env::var_os(DEMO_FOLDER).is_some() {
        return Some(format!("rrun demo {}", quoted(&folder.to_string_lossy())));
    }
    let before = &words[..words.len().checked_sub(cli.args.len())?];
    let before = before.iter().map(OsString::as_os_str);
    let resumed = before.chain([OsStr::new("--resume"), folder.as_os_str()]);
    let page = page.map(|address| format!("--page={address}"));
    let others = page.iter().chain(&tracking.words).map(OsStr::new);
    Some(command(resumed.chain(others)))
}

/// Returns the command of a quick run without `--quick`, for a shell.
pub fn command_without_quick(words: &[OsString]) -> String {
    let kept = words.iter().filter(|word| *word != "--quick");
    command(kept.map(OsString::as_os_str))
}

/// Returns the command with these words, for a shell.
fn command<'a>(words: impl Iterator<Item = &'a OsStr>) -> String {
    let words = [OsStr::new("rrun")].into_iter().chain(words);
    let quoted: Vec<_> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Environment;
    use crate::tests::{cli, words};

    fn parsed(line: &str) -> Cli {
        cli(line, &Environment::default())
    }

    #[test]
    fn the_command_of_the_whole_run_is_that_of_the_quick_one_without_its_option() {
        let line = words("--nproc-per-node 2 eval --jobs my␣jobs.json --quick");
        let whole = "rrun --nproc-per-node 2 eval --jobs 'my jobs.json'";
        assert_eq!(command_without_quick(&line), whole);
    }

    #[test]
    fn the_token_of_a_server_moves_into_the_environment_with_all_other_words_as_they_were() {
        let line = "--nproc-per-node 2 serve --policy x --api-token s3cret --port 1";
        let command = with_token_in_environment(&parsed(line), &words(line)).unwrap();
        let left: Vec<_> = command.get_args().collect();
        assert_eq!(left, words("--nproc-per-node 2 serve --policy x --port 1"));
        let variables: Vec<_> = command.get_envs().collect();
        let token = (OsStr::new("RRUN_API_TOKEN"), Some(OsStr::new("s3cret")));
        assert_eq!(variables, [token]);
        let other = "x.py --api-token s3cret";
        assert!(
            with_token_in_environment(&parsed(other), &words(other)).is_none(),
            "a program of the user's"
        );
    }

    #[test]
    fn the_command_that_resumes_has_the_options_of_the_launcher() {
        let line = "--nproc-per-node 2 eval --jobs a.json --seed=7";
        let command = |folder: &str, tracking: &TrackingArgs| {
            let page = (folder == "out").then(|| ([127, 0, 0, 1], 8123).into());
            let folder = Path::new(folder);
            resume_command(&parsed(line), &words(line), folder, page, tracking).unwrap()
        };
        let (not_tracked, tracked) = (
            TrackingArgs::default(),
            TrackingArgs {
                words: ["--track=wandb", "--track-name=a b"]
                    .map(str::to_owned)
                    .to_vec(),
                ..TrackingArgs::default()
            },
        );
        let plain = command("outputs/tonight", &not_tracked);
        assert_eq!(
            plain,
            "rrun --nproc-per-node 2 eval --resume outputs/tonight"
        );
        let quoted = command("it's my run", &not_tracked);
        assert!(quoted.ends_with(r"--resume 'it'\''s my run'"), "{quoted}");
        let tracked = command("out", &tracked);
        let end = "--resume out --page=127.0.0.1:8123 --track=wandb '--track-name=a b'";
        assert!(tracked.ends_with(end), "{tracked}");
    }

    #[test]
    fn help_is_no_script_and_a_misspelt_command_after_it_is_refused() {
        let topic = |line| help_topic(&words(line)).map_err(|err| err.to_string());
        for (line, wanted) in [
            ("help", Ok(Some(HelpTopic::Commands))),
            ("help --all", Ok(Some(HelpTopic::Commands))),
            ("help options", Ok(Some(HelpTopic::Options))),
            ("help eval", Ok(Some(HelpTopic::Command("eval")))),
            ("train.py help", Ok(None)),
            (
                "help evel",
                Err("there is no command `evel`: did you mean `rrun help eval`?"),
            ),
            (
                "help me",
                Err("there is no command `me`: `rrun help` lists them"),
            ),
        ] {
            assert_eq!(topic(line), wanted.map_err(str::to_owned), "{line}");
        }
    }

    #[test]
    fn a_misspelt_word_is_known_and_a_script_is_left_alone() {
        let meant = |word: &str| meant_by(OsStr::new(word));
        let known = ["evel", "sevre", "reprot", "hlep", "Eval"].map(meant);
        assert_eq!(known, ["eval", "serve", "report", "help", "eval"].map(Some));
        let scripts = ["train.py", "./evall", "train", "src"].map(meant);
        assert_eq!(scripts, [None; 4]);
    }
}
