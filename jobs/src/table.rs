//! Formats a table for the terminal.

use crate::printable::printable_line;

/// Maximum number of rows of a table in the terminal; the rest is counted.
pub const MAX_ROWS: usize = 60;

/// Formats rows below a heading, with each column as wide as its widest cell. The text of a cell
/// may come from anywhere, and is escaped to stay within its line.
pub fn grid<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let shown = |row: &[String; N]| row.each_ref().map(|cell| printable_line(cell).into_owned());
    let rows: Vec<[String; N]> = rows.iter().map(shown).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells
            .chain([head[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let rule = widths.iter().fold(String::from("+"), |line, width| {
        line + &"-".repeat(width + 2) + "+"
    });
    let line = |cells: [&str; N]| {
        cells
            .iter()
            .zip(widths)
            .fold(String::from("|"), |line, (cell, width)| {
                format!("{line} {cell:<width$} |")
            })
    };
    let body = rows
        .iter()
        .map(|row| line(std::array::from_fn(|column| row[column].as_str())));
    let lines = [rule.clone(), line(head), rule.clone()]
        .into_iter()
        .chain(body)
        .chain([rule]);
    lines.fold(String::new(), |text, line| text + &line + "\n")
}
