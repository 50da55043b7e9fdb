//! The parts of a page: tables, lists that are cut, names, links to files.

use jobs::format;
use maud::{Markup, PreEscaped, html};

/// Maximum number of rows of a table; the rest is counted.
pub(crate) const MOST_ROWS: usize = 500;

/// Maximum number of characters shown of a name.
pub(crate) const MOST_NAME: usize = 80;

/// The heading of a column.
pub(crate) struct Column {
    name: Markup,
    /// CSS class of the heading and of the cells: `n` for numbers.
    class: Option<&'static str>,
    title: Option<&'static str>,
}

impl Column {
    /// Returns a column of text.
    pub(crate) fn words(name: impl Into<Cell>) -> Self {
        Self {
            name: name.into().body,
            class: None,
            title: None,
        }
    }

    /// Returns a column of numbers.
    pub(crate) fn numbers(name: &str) -> Self {
        Self {
            class: Some("n"),
            ..Self::words(name)
        }
    }

    /// Returns a column of numbers with an explanation.
    pub(crate) fn about(name: &str, title: &'static str) -> Self {
        Self {
            title: Some(title),
            ..Self::numbers(name)
        }
    }
}

/// A cell below a heading.
pub(crate) struct Cell {
    /// What the column is sorted by, if it is not the text.
    key: Option<f64>,
    /// CSS class beside that of the column.
    class: &'static str,
    body: Markup,
}

impl Cell {
    /// Adds what the column is sorted by.
    pub(crate) fn by(self, key: Option<f64>) -> Self {
        Self { key, ..self }
    }

    /// Adds a CSS class.
    pub(crate) fn class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }
}

impl From<Markup> for Cell {
    fn from(body: Markup) -> Self {
        Self {
            key: None,
            class: "",
            body,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        html! { (text) }.into()
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

/// Returns a count, which sorts by its value.
pub(crate) fn count(value: u64) -> Cell {
    Cell::from(format::count(value)).by(Some(value as f64))
}

/// Returns a number with its text, which is empty if the number is not known.
pub(crate) fn number(value: Option<f64>, text: impl Fn(f64) -> String) -> Cell {
    Cell::from(value.map(text).unwrap_or_default()).by(value)
}

/// Renders a table that scrolls within the page. The first cell of a row is its heading. Of the
/// items the first [`MOST_ROWS`] are shown, and the others counted.
pub(crate) fn table<T>(
    [name, class]: [&str; 2],
    columns: &[Column],
    items: impl ExactSizeIterator<Item = T>,
    row: impl Fn(T) -> Vec<Cell>,
) -> Markup {
    let rest = items.len().saturating_sub(MOST_ROWS);
    html! {
        div.scroll role="region" aria-label=(name) tabindex="0" {
            table class=(class) {
                thead { tr { @for Column { name, class, title } in columns {
                    th scope="col" class=[class] title=[title] { (name) }
                } } }
                tbody { @for item in items.take(MOST_ROWS) { (cells(columns, row(item))) } }
            }
        }
        (cut(rest))
    }
}

fn cells(columns: &[Column], row: Vec<Cell>) -> Markup {
    html! {
        tr { @for (at, (Cell { key, class, body }, column)) in row.iter().zip(columns).enumerate() {
            @if at == 0 { th scope="row" class=[column.class] { (body) } }
            @else {
                @let class = [column.class.unwrap_or_default(), class].join(" ");
                @let class = class.trim();
                td class=[(!class.is_empty()).then_some(class)] data-v=[key.map(|key| format!("{key:.6}"))] { (body) }
            }
        } }
    }
}

/// Counts what is left out of a list.
pub(crate) fn cut(rest: usize) -> Markup {
    html! {
        @if rest > 0 { p.cut { "and " (format::count(rest as u64)) " more, see report.json" } }
    }
}

/// Shows the first items, each as a line, and counts the others.
pub(crate) fn first<T>(items: &[T], most: usize, show: impl Fn(&T) -> Markup) -> Markup {
    let rest = items.len().saturating_sub(most) as u64;
    html! {
        @for item in items.iter().take(most) { span.place { (show(item)) } }
        @if rest > 0 { span.place.muted { "and " (format::count(rest)) " more" } }
    }
}

/// Renders a name, which may wrap at its separators.
pub(crate) fn title(name: &str) -> Markup {
    let clipped = clip(name, MOST_NAME);
    let parts = clipped.split_inclusive(['_', '-', '/']);
    html! { @for part in parts { (part) (PreEscaped("<wbr>")) } }
}
/// Returns a path of a journal, relative to the run folder or absolute, as a reference that can
/// only lead to a file: it has no scheme, no host, and nothing that begins a query or a fragment.
pub(crate) fn href(path: &str) -> String {
    let start = if path.starts_with('/') { "/" } else { "./" };
    let mut text = String::from(start);
    for byte in path.trim_start_matches('/').bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte))
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Returns the text after the last slash.
pub(crate) fn name(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(path)
}

/// Returns at most `most` characters; the rest is replaced by `…`.
pub(crate) fn clip(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_a_file_and_nowhere_else() {
        for (path, link) in [
            ("reach/video_0.mp4", "./reach/video_0.mp4"),
            ("a b#1?%/é.mp4", "./a%20b%231%3F%25/%C3%A9.mp4"),
            (
                "javascript:alert(1)/x.mp4",
                "./javascript%3Aalert%281%29/x.mp4",
            ),
            ("\"><script>", "./%22%3E%3Cscript%3E"),
            ("/data/x.mp4", "/data/x.mp4"),
            ("//host/x.mp4", "/host/x.mp4"),
            ("\\\\host\\x", "./%5C%5Chost%5Cx"),
        ] {
            assert_eq!(href(path), link);
        }
    }

    #[test]
    fn long_texts_are_clipped_between_characters() {
        assert_eq!(clip("über", 4), "über");
        assert_eq!(clip("über allem", 5), "über…");
        assert_eq!(name("a/b/c.py:make"), "c.py:make");
    }
}
