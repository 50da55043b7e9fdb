//! The text of `rrun --help`: one screen. Commands first, then the names of all options, which
//! torchrun's help also has. `rrun help options` explains them ([`crate::cli::help`]).

use clap::Command;

use crate::cli::commands::{COMMANDS, CommandRow, Group};

/// Columns of a terminal.
const WIDTH: usize = 80;

const HEAD: &str = "\
Evaluate robot policies, and start programs as torchrun does: one rank per GPU

Usage: rrun [OPTIONS] PROGRAM [ARGS]...   or   rrun COMMAND [ARGS]...

";

const OPTIONS: &str = "
Help: `rrun help COMMAND` has examples and options of a command, and
`rrun help options` explains these options, which come before PROGRAM:
";

/// Returns the screen for the options of `command`.
pub fn screen(command: &Command) -> String {
    let rows: String = Group::ALL.into_iter().map(rows).collect();
    format!("{HEAD}{rows}{OPTIONS}{}", filled(&words(command)))
}

/// Returns the lines of a group, its title at the first.
fn rows(group: Group) -> String {
    let rows = COMMANDS.iter().filter(|row| row.group == group);
    let line = |(index, row): (usize, &CommandRow)| {
        let title = if index == 0 { group.title() } else { "" };
        format!("{title:<8} {:<11} {}\n", row.name, row.does)
    };
    rows.enumerate().map(line).collect()
}

/// Returns the headings of the options, each followed by their names.
fn words(command: &Command) -> Vec<String> {
    let (mut words, mut heading) = (Vec::<String>::new(), None);
    for option in command.get_arguments() {
        let Some(long) = option.get_long() else {
            continue;
        };
        let its_heading = option.get_help_heading();
        if heading != its_heading {
            heading = its_heading;
            if let Some(last) = words.last_mut() {
                *last += " ·";
            }
            words.extend(heading.map(|title| format!("{title}:")));
        }
        let short = option.get_short().map(|short| format!("-{short} "));
        words.push(format!("{}--{long}", short.unwrap_or_default()));
    }
    words
}

/// Returns the words in lines that fit.
fn filled(words: &[String]) -> String {
    let (mut text, mut line) = (String::new(), String::from(" "));
    for word in words {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            text += &line;
            text.push('\n');
            line = String::from(" ");
        }
        line.push(' ');
        line += word;
    }
    text + &line + "\n"
}
