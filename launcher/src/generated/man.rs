//! `--write-man DIR`: man pages of `rrun` and of each command.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use jobs::usage::Examples;

use crate::cli::commands::{COMMANDS, USERS_PROGRAM, examples};
use crate::generated::whole;

/// A man page cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{}`: {err}", path.display())]
pub struct ManError {
    path: PathBuf,
    err: io::Error,
}

/// Writes all pages into a folder, which is made if there is none, and returns their paths.
///
/// # Errors
/// Returns the first file or folder that cannot be written.
pub fn write(folder: &Path) -> Result<Vec<PathBuf>, ManError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |err| ManError { path, err }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;

    let mut paths = Vec::new();
    for (name, text) in pages().map_err(failed(folder))? {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(failed(&path))?;
        paths.push(path);
    }
    Ok(paths)
}

/// Returns the file names and texts of all pages.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let whole = whole().subcommand_help_heading("COMMANDS");
    let mut pages = vec![("rrun.1".to_owned(), page(whole.clone(), USERS_PROGRAM)?)];
    for command in whole.get_subcommands() {
        let name = command.get_name().to_owned();
        let file = format!("rrun-{name}");
        let command = command.clone().display_name(&file);
        let command = command.bin_name(format!("rrun {name}"));
        pages.push((format!("{file}.1"), page(command, &name)?));
    }
    Ok(pages)
}

/// Returns the page of a command, with the examples of a row of the help.
fn page(mut command: Command, row: &str) -> io::Result<Vec<u8>> {
    let has_commands = command.has_subcommands();
    // Without it, the synopsis would name every option.
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let command = command.override_usage(usage);
    let source = concat!("rrun ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).manual("rrun").source(source);

    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    write_examples(&mut text, examples(row))?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    man.render_options_section(&mut text)?;
    if has_commands {
        man.render_extra_section(&mut text)?;
    }
    see_also(&mut text, has_commands)?;
    Ok(text)
}

fn write_examples(text: &mut Vec<u8>, examples: Examples) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]);
    for (line, what) in examples {
        roff.control("TP", []);
        roff.text([bold(*line)]);
        roff.text([roman(*what)]);
    }
    match examples {
        [] => Ok(()),
        _ => roff.to_writer(text),
    }
}

fn see_also(text: &mut Vec<u8>, is_of_all: bool) -> io::Result<()> {
    let mut pages = vec!["rrun(1)".to_owned()];
    if is_of_all {
        let rows = COMMANDS.iter().filter(|row| row.name != USERS_PROGRAM);
        pages = rows.map(|row| format!("rrun-{}(1)", row.name)).collect();
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(pages.join(", "))]);
    roff.to_writer(text)?;
    text.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(name: &str) -> String {
        let pages = pages().expect("pages in memory");
        let (_, text) = pages.into_iter().find(|(file, _)| file == name).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_command_has_a_page_with_its_examples_and_options() {
        for row in COMMANDS.iter().filter(|row| row.name != USERS_PROGRAM) {
            let text = text_of(&format!("rrun-{}.1", row.name));
            assert!(text.contains(".SH EXAMPLES"), "{text}");
            let synopsis = format!(".SH SYNOPSIS\n\\fBrrun {}\\fR ", row.name);
            assert!(text.contains(&synopsis), "{synopsis}: {text}");
            assert!(text.contains("\\-\\-help"), "{text}");
            let named = format!("rrun\\-{} \\- ", row.name);
            assert!(text.contains(&named), "{named}: {text}");
        }
    }

    #[test]
    fn a_synopsis_does_not_list_all_options() {
        let text = text_of("rrun-eval.1");
        assert!(
            text.contains("\\fBrrun eval\\fR [OPTIONS] [KEY=VALUE]...\n"),
            "{text}"
        );
    }

    #[test]
    fn the_first_page_has_the_options_of_the_launcher_and_names_the_other_pages() {
        let text = text_of("rrun.1");
        for part in [
            "\\-\\-nproc\\-per\\-node",
            ".SH RENDEZVOUS",
            "rrun\\-verify(1)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_folder_that_is_a_file_is_refused_by_its_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let err = write(file.path()).unwrap_err().to_string();
        let told = format!("cannot write `{}`: ", file.path().display());
        assert!(err.starts_with(&told), "{err}");
    }
}
