//! A table: as a grid or in columns for the terminal, and in Markdown.

use crate::count::counted;
use crate::format::THIN;
use crate::printable::printable_line;

/// Maximum number of rows of a table in the terminal; the rest is counted.
pub const MAX_ROWS: usize = 60;

/// Rows below a heading. The text of a cell may come from anywhere, and is escaped to stay within
/// its line.
#[derive(Clone, Debug)]
pub struct Table<const N: usize> {
    head: [&'static str; N],
    rows: Vec<[String; N]>,
    /// The line below the rows, which counts those that are left out.
    rest: String,
}

impl<const N: usize> Table<N> {
    /// Creates a table of all rows.
    pub fn new(head: [&'static str; N], rows: impl IntoIterator<Item = [String; N]>) -> Self {
        Self {
            head,
            rows: rows.into_iter().collect(),
            rest: String::new(),
        }
    }

    /// Creates a table of the first rows, and counts the others as so many `more`: "… and 12 more
    /// jobs, see report.json". `hint` is what follows the noun, or empty.
    pub fn first(
        head: [&'static str; N],
        rows: impl IntoIterator<Item = [String; N], IntoIter: ExactSizeIterator>,
        noun: &str,
        hint: &str,
    ) -> Self {
        let rows = rows.into_iter();
        let rest = match rows.len().saturating_sub(MAX_ROWS) {
            0 => String::new(),
            left_out => format!(
                "… and {}{hint}\n",
                counted(left_out, &format!("more {noun}"))
            ),
        };
        Self {
            rest,
            ..Self::new(head, rows.take(MAX_ROWS))
        }
    }

    /// Appends a row, such as the sum of all, whether rows are left out or not.
    pub fn push(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// Formats the table as Arena does, with each column as wide as its widest cell.
    pub fn grid(&self) -> String {
        let lines = self.lines(self.rows.len());
        let widths = widths(&lines);
        let rule = widths.iter().fold(String::from("+"), |rule, width| {
            rule + &"-".repeat(width + 2) + "+"
        });
        let mut text = format!("{rule}\n");
        for (number, line) in lines.iter().enumerate() {
            text.push('|');
            for (cell, width) in line.iter().zip(widths) {
                text += &format!(" {cell:<width$} |");
            }
            text.push('\n');
            if number == 0 {
                text += &format!("{rule}\n");
            }
        }
        text + &rule + "\n" + &self.rest
    }

    /// Returns a heading and at most `most` lines below it, none without rows. The columns in
    /// `right`, which have numbers, end below each other.
    pub fn columns(&self, right: &[usize], most: usize) -> Vec<String> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let left_out = self.rows.len().saturating_sub(most.max(1));
        // The line that counts the others takes the place of a row.
        let shown = self.rows.len() - left_out - usize::from(left_out > 0 && most > 1);
        let lines = self.lines(shown);
        let widths = widths(&lines);
        let line = |line: &[String; N]| {
            let mut text = String::new();
            for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
                text += &match right.contains(&column) {
                    true => format!("{cell:>width$}  "),
                    false => format!("{cell:<width$}  "),
                };
            }
            text.trim_end().to_owned()
        };
        let mut text: Vec<_> = lines.iter().map(line).collect();
        if self.rows.len() > shown {
            text.push(format!("and {} more", self.rows.len() - shown));
        }
        text
    }

    /// Formats the table in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("| {} |\n|{}\n", self.head.join(" | "), "---|".repeat(N));
        for row in &self.rows {
            let cells = row.each_ref().map(|cell| in_markdown(cell));
            text += &format!("| {} |\n", cells.join(" | "));
        }
        text
    }

    /// Returns the heading and the first rows, as a terminal can show them.
    fn lines(&self, shown: usize) -> Vec<[String; N]> {
        let mut lines = vec![self.head.map(str::to_owned)];
        let rows = self.rows[..shown].iter();
        lines.extend(rows.map(|row| row.each_ref().map(|cell| plain(cell))));
        lines
    }
}

/// Returns the characters of the widest cell of each column.
fn widths<const N: usize>(lines: &[[String; N]]) -> [usize; N] {
    std::array::from_fn(|column| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    })
}

/// Returns a text for the terminal: in one line, and without narrow spaces, which not every
/// terminal has.
pub fn plain(text: &str) -> String {
    printable_line(&text.replace(THIN, " ")).into_owned()
}

/// Escapes what would end a cell of a table, or begin HTML, code or emphasis.
pub fn in_markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '|' | '<' | '`' | '*' | '_' | '[' | '\\') {
            escaped.push('\\');
        }
        escaped.push(if letter == '\n' { ' ' } else { letter });
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(rows: usize) -> impl ExactSizeIterator<Item = [String; 2]> {
        (0..rows).map(|row| [row.to_string(), String::new()])
    }

    #[test]
    fn a_cell_keeps_to_its_line_and_does_nothing_to_the_terminal() {
        let text = Table::new(["Name"], [["\u{1b}[2J\na".to_owned()]]).grid();
        assert!(text.contains(r"| \u{1b}[2J\na |"), "{text}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[test]
    fn rows_that_do_not_fit_are_counted() {
        let lines = Table::new(["a", "b"], numbered(9)).columns(&[0], 4);
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert_eq!(lines[4], "and 6 more");
        let more = |rows| Table::first(["a", "b"], numbered(rows), "job", ", see x").grid();
        assert!(more(61).ends_with("\n… and 1 more job, see x\n"));
        assert!(more(62).ends_with("\n… and 2 more jobs, see x\n"));
        assert_eq!(more(60).lines().count(), 64);
    }

    #[test]
    fn names_cannot_end_a_cell_in_markdown() {
        assert_eq!(in_markdown("a|b\nc<d>"), "a\\|b c\\<d>");
        let text = Table::new(["a", "b"], [["x|y".to_owned(), "1".to_owned()]]).markdown();
        assert_eq!(text, "| a | b |\n|---|---|\n| x\\|y | 1 |\n");
    }
}
