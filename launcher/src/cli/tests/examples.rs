//! Command lines that help and docs show: each is parsed.

use std::path::{Path, PathBuf};

use jobs::eval_args::EvalArgs;
use jobs::serve_args::ServeArgs;

use super::*;

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
fn read(line: &str) -> Result<(), String> {
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
            assert_eq!(read(line), Ok(()), "{line}");
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
        read("rrun verify --no-such-option x").is_err(),
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
            match read(&line.text) {
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
