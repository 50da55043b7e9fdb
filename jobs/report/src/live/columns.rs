//! Rows of text in columns, and lines that fit.

use jobs::printable::printable_line;

use crate::page::number;

/// Formats at most `most` rows below a heading. `right` are the columns of numbers.
pub(super) fn table<const N: usize>(
    head: [&str; N],
    right: [usize; 2],
    rows: Vec<[String; N]>,
    most: usize,
) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let left_out = rows.len().saturating_sub(most.max(1));
    // The line that counts the others takes the place of a row.
    let shown = rows.len() - left_out - usize::from(left_out > 0 && most > 1);
    let cell = |cell: &String| plain(cell);
    let mut cells: Vec<[String; N]> = vec![head.map(str::to_owned)];
    cells.extend(rows[..shown].iter().map(|row| row.each_ref().map(cell)));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            match right.contains(&column) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines: Vec<_> = cells.iter().map(line).collect();
    if rows.len() > shown {
        lines.push(format!("and {} more", rows.len() - shown));
    }
    lines
}

/// Replaces the narrow spaces of the page, which not every terminal has.
pub(super) fn plain(text: &str) -> String {
    printable_line(&text.replace(number::THIN, " ")).into_owned()
}

/// Returns a line of at most so many characters.
pub(super) fn clipped(line: &str, columns: usize) -> String {
    match line.char_indices().nth(columns) {
        None => line.to_owned(),
        Some(_) => {
            let kept: String = line.chars().take(columns.saturating_sub(1)).collect();
            kept + "…"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_do_not_fit_are_counted() {
        let rows = (0..9).map(|row| [row.to_string(), String::new()]).collect();
        let lines = table(["a", "b"], [0, 0], rows, 4);
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert_eq!(lines[4], "and 6 more");
    }
}
