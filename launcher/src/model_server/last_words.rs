//! Prints the last output of a model server that has failed.

use std::path::Path;

use crate::logs::lines::last_lines;
use crate::model_server::process::START;
use crate::say;

/// Number of lines to print.
const LINES: usize = 10;

/// Prints the end of its log.
pub fn say(log: &Path) {
    let path = log.display();
    match last_lines(log, LINES).map(of_last_start) {
        Ok(lines) if lines.is_empty() => say::error(format_args!(
            "model server: `{path}` has nothing since its last start"
        )),
        Ok(lines) => {
            let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
            say::error(format_args!("model server: end of `{path}`:{lines}"));
        }
        Err(err) => say::error(format_args!("model server: cannot read `{path}`: {err}")),
    }
}

/// Returns the lines of the last start; the log contains all starts.
fn of_last_start(mut lines: Vec<String>) -> Vec<String> {
    let start = lines.iter().rposition(|line| line.starts_with(START));
    lines.drain(..start.map_or(0, |start| start + 1));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_starts_the_last_one_has_the_last_words() {
        let of = |lines: &[&str]| {
            of_last_start(lines.iter().map(|&line| line.to_owned()).collect()).join(" ")
        };
        let start = format!("{}…", START);
        assert_eq!(of(&["a", &start, "b", &start, "c", "d"]), "c d");
        assert_eq!(
            (of(&["a", "b"]), of(&["a", &start])),
            ("a b".to_owned(), String::new())
        );
    }
}
