//! What help, version and docs say about the options.

use clap::CommandFactory as _;
use jobs::eval_args::EvalArgs;
use jobs::serve_args::ServeArgs;

use super::*;
use crate::plan::settings::RESTARTS;

#[test]
fn help_is_as_in_the_file() {
    let Ok(CliRequest::Print(text)) = request("-r3 -h --bogus") else {
        panic!("no help")
    };
    assert_eq!(text, short_help());
    assert_eq!(
        help(),
        include_str!("../help.txt"),
        "if the change is meant: rrun help options > launcher/src/cli/help.txt"
    );
    for text in [text, help()] {
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}

#[test]
fn help_is_one_screen_with_every_command_and_the_name_of_every_option() {
    let text = short_help();
    assert!(text.lines().count() <= 36, "{text}");
    for row in commands::COMMANDS {
        assert!(
            text.contains(&format!(" {:<11} {}\n", row.name, row.does)),
            "{}",
            row.name
        );
    }
    let command = Cli::command();
    for long in command.get_arguments().filter_map(clap::Arg::get_long) {
        let long = format!("--{long}");
        assert!(text.split_whitespace().any(|word| word == long), "{long}");
    }
}

#[test]
fn every_tool_and_program_has_a_row_and_every_row_is_one() {
    let tools = crate::tools::commands();
    let tools = tools.iter().map(Command::get_name);
    let mut known: Vec<_> = tools.chain(["eval", "serve"]).collect();
    let mut named: Vec<_> = commands::names().collect();
    known.sort_unstable();
    named.sort_unstable();
    assert_eq!(
        named, known,
        "the rows of launcher/src/cli/commands.rs, and the commands"
    );
}

/// Returns a page of the documentation, with runs of blanks collapsed.
fn page(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path);
    squeezed(&std::fs::read_to_string(path).unwrap())
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn help_and_docs_tell_the_restarts_of_a_built_in_program() {
    assert!(squeezed(&help()).contains(&format!(
        "[default: 0; for eval and serve with isolate {RESTARTS}]"
    )));
    assert!(page("docs/launch.md").contains(&format!(
        "0 if it is not given, {RESTARTS} for `eval` and `serve`"
    )));
    assert!(page("docs/launch.md").contains(&format!("restart 1 of {RESTARTS} in 1 s")));
    assert!(page("docs/resume.md").contains(&format!("while `--max-restarts` ({RESTARTS}) lasts")));
}

/// Returns options and the numbers after them, as in "`--job-attempts`, 2)" and
/// "`--max-connections` (1024".
fn defaults_in(page: &str) -> Vec<(String, String)> {
    let behind = |piece: &str| {
        let (name, rest) = piece.split_once('`')?;
        let number = rest
            .strip_prefix(" (")
            .or_else(|| rest.strip_prefix(", "))?;
        let end = number.find(|letter: char| !letter.is_ascii_digit())?;
        let is_closed = rest.starts_with(" (") || number[end..].starts_with(')');
        (end > 0 && is_closed).then(|| (name.to_owned(), number[..end].to_owned()))
    };
    page.split("`--").skip(1).filter_map(behind).collect()
}

#[test]
fn defaults_in_the_docs_are_those_of_the_options() {
    let commands = [Cli::command(), EvalArgs::command(), ServeArgs::command()];
    let default = |name: &str| {
        let mut options = commands.iter().flat_map(clap::Command::get_arguments);
        let option = options.find(|option| {
            option.get_long() == Some(name) && !option.get_default_values().is_empty()
        });
        Some(
            option?.get_default_values()[0]
                .to_string_lossy()
                .into_owned(),
        )
    };
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let pages = std::fs::read_dir(docs)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages = pages
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"));
    let mut compared = 0;
    for name in pages {
        for (option, told) in defaults_in(&page(&name))
            .into_iter()
            .filter(|(option, _)| option != "max-restarts")
        {
            assert_eq!(Some(told), default(&option), "{name}: --{option}");
            compared += 1;
        }
    }
    assert!(
        compared >= 3,
        "the docs name defaults: {compared} were found"
    );
}

#[test]
fn the_version_and_completions_are_printed_without_a_program() {
    let Ok(CliRequest::Print(text)) = request("-V") else {
        panic!("no version")
    };
    assert_eq!(text, concat!("rrun ", env!("CARGO_PKG_VERSION"), "\n"));
    let request = request("--print-completion bash");
    let bash = clap_complete::Shell::Bash;
    assert!(matches!(request, Ok(CliRequest::PrintCompletion(shell)) if shell == bash));
    assert_eq!(
        read("--print-completion=ksh x"),
        "invalid value 'ksh' for '--print-completion <SHELL>' \
         [possible values: bash, elvish, fish, powershell, zsh]"
    );
}
