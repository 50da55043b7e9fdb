//! What help, version and docs say about the options, and the command lines that they show: each is
//! parsed.

use std::path::{Path, PathBuf};

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

/// Returns a guide, with runs of blanks collapsed.
fn page(name: &str) -> String {
    squeezed(&std::fs::read_to_string(root().join("docs").join(name)).unwrap())
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn help_and_docs_tell_the_restarts_of_a_built_in_program() {
    assert!(squeezed(&help()).contains(&format!(
        "[default: 0; for eval and serve with isolate {RESTARTS}]"
    )));
    assert!(page("launch.md").contains(&format!(
        "0 if it is not given, {RESTARTS} for `eval` and `serve`"
    )));
    assert!(page("launch.md").contains(&format!("restart 1 of {RESTARTS} in 1 s")));
    assert!(page("resume.md").contains(&format!("while `--max-restarts` ({RESTARTS}) lasts")));
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
    let mut compared = 0;
    for (name, text) in guides() {
        let told = defaults_in(&squeezed(&text)).into_iter();
        for (option, told) in told.filter(|(option, _)| option != "max-restarts") {
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

/// Returns the words of a command line, as a shell reads it.
fn words_of(line: &str) -> Vec<OsString> {
    let script = format!("printf '%s\\n' {line}");
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(OsString::from).collect()
}

/// Reads a command line to the end: the launcher's words, and those of the command.
fn checked(line: &str) -> Result<(), String> {
    let words = words_of(line);
    let (rrun, words) = words.split_first().ok_or("it is empty")?;
    if rrun != "rrun" {
        return Err("it does not begin with rrun".to_owned());
    }
    if built_in::help_topic(words)
        .map_err(|err| err.to_string())?
        .is_some()
    {
        return Ok(());
    }
    if crate::tools::is_asked(words) {
        return crate::tools::check(words).map_err(|err| err.to_string());
    }
    let request = parse(words, &Environment::default()).map_err(|err| err.to_string())?;
    let CliRequest::Launch(cli) = request else {
        return Ok(());
    };
    let err = match cli.built_in() {
        Some("eval") => EvalArgs::parse_words(&cli.args).err(),
        Some("serve") => ServeArgs::parse_words(&cli.args).err(),
        _ => None,
    };
    err.map_or(Ok(()), |err| Err(err.to_string()))
}

#[test]
fn every_command_has_examples_that_its_parser_takes() {
    for row in commands::COMMANDS {
        let about = format!("{}: {:?}", row.name, row.examples);
        assert!((2..=5).contains(&row.examples.len()), "{about}");
        for (line, _) in row.examples {
            assert_eq!(checked(line), Ok(()), "{line}");
            let named = line.split_whitespace().any(|word| word == row.name);
            assert!(named || row.name == commands::USERS_PROGRAM, "{line}");
            assert!(!line.contains(['{', '}']), "{line}: a brace is clap's");
        }
        let lines = jobs::usage::example_lines(row.examples);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 98),
            "{lines:#?}"
        );
    }
    assert!(
        checked("rrun verify --no-such-option x").is_err(),
        "the test sees errors"
    );
}

/// Returns the folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns README and all guides, with their names.
fn guides() -> Vec<(String, String)> {
    let mut paths = vec![root().join("README.md")];
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "md") {
            paths.push(path);
        }
    }
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(read).collect()
}

/// A command line of a guide.
struct ShownLine {
    text: String,
    /// It stands in a code block, and not within a sentence, where it may lack its arguments.
    is_whole: bool,
}

/// Returns the lines of a guide that begin with `rrun`, but for those with an ellipsis, with
/// something for the shell, or with any command.
fn lines_of(page: &str) -> Vec<ShownLine> {
    let (mut lines, mut is_code) = (Vec::new(), false);
    let mut add = |text: &str, is_whole: bool| {
        if text.starts_with("rrun ")
            && !text.contains(['…', '|', '<', '>'])
            && !text.contains("COMMAND")
        {
            let text = text.to_owned();
            lines.push(ShownLine { text, is_whole });
        }
    };
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            add(line.trim_start_matches("$ "), true);
        } else {
            let within = line.split('`').skip(1).step_by(2);
            within.for_each(|text| add(text, false));
        }
    }
    lines
}

#[test]
fn every_command_line_of_the_docs_is_one_that_is_read() {
    let mut read_lines = 0;
    for (name, page) in guides() {
        for line in lines_of(&page) {
            match checked(&line.text) {
                Ok(()) => read_lines += 1,
                Err(err) if !line.is_whole && err.contains("required") => {}
                Err(err) => panic!("{name}: `{}`: {err}", line.text),
            }
        }
    }
    assert!(read_lines > 80, "only {read_lines} were found");
}

/// Returns the links to guides in a text, in their order.
fn linked(text: &str, before: &str) -> Vec<String> {
    let pieces = text.split(before).skip(1);
    let page = |piece: &str| {
        let end = piece.find(".md")?;
        let name = &piece[..end];
        let is_name = name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
        is_name.then(|| format!("{name}.md"))
    };
    pieces.filter_map(page).collect()
}

#[test]
fn the_guide_of_the_readme_and_the_site_have_the_same_pages_in_the_same_order() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let site = std::fs::read_to_string(root().join("deploy/site/mkdocs.yml")).unwrap();
    let (_, guide) = readme.split_once("## Guide").unwrap();
    let (_, nav) = site.split_once("\nnav:").unwrap();
    let mut on_site = linked(nav, ": ");
    assert_eq!(on_site.remove(0), "index.md");
    assert_eq!(linked(guide, "](docs/"), on_site);

    // MkDocs itself compares the list of the site with the folder.
    let there = guides().len() - 2; // without README.md and index.md
    assert_eq!(on_site.len(), there, "pages of docs/");
}
