//! The parts of a page: tables, lists that are cut, names, links to files.

use jobs::format;
use maud::{Markup, PreEscaped, Render, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Maximum number of rows of a table; the rest is counted.
pub(crate) const MOST_ROWS: usize = 500;

/// Maximum number of characters shown of a name.
pub(crate) const MOST_NAME: usize = 80;

/// A cell of a table, also of its head.
pub(crate) struct Cell {
    /// What the column is sorted by, if it is not the text.
    key: Option<f64>,
    /// CSS classes: `n` for numbers.
    class: Option<&'static str>,
    /// An explanation, which a heading may have.
    about: Option<&'static str>,
    body: Markup,
}

impl Cell {
    /// Adds what the column is sorted by.
    pub(crate) fn by(self, key: Option<f64>) -> Self {
        Self { key, ..self }
    }

    /// Sets the CSS classes.
    pub(crate) fn class(self, class: &'static str) -> Self {
        Self {
            class: Some(class),
            ..self
        }
    }

    fn is_number(&self) -> bool {
        let classes = self.class.unwrap_or_default();
        classes.split(' ').any(|class| class == "n")
    }
}

impl<T: Render> From<T> for Cell {
    fn from(value: T) -> Self {
        Self {
            key: None,
            class: None,
            about: None,
            body: html! { (value) },
        }
    }
}

/// Returns headings; what follows a colon explains a heading.
pub(crate) fn heads<const N: usize>(names: [&'static str; N]) -> Vec<Cell> {
    let head = |name: &'static str| {
        let mut parts = name.splitn(2, ": ");
        let head = Cell::from(parts.next().unwrap_or_default());
        Cell {
            about: parts.next(),
            ..head
        }
    };
    names.map(head).into()
}

/// Returns a count, which sorts by its value.
pub(crate) fn count(value: u64) -> Cell {
    number(Some(value as f64), |_| format::count(value))
}

/// Returns a number with its text, which is empty if the number is not known.
pub(crate) fn number(value: Option<f64>, text: impl Fn(f64) -> String) -> Cell {
    let text = value.map(text).unwrap_or_default();
    Cell::from(text).by(value).class("n")
}

/// Returns a number with its text, which is a dash if the number is not known.
pub(crate) fn known(value: Option<f64>, text: impl Fn(f64) -> String) -> Cell {
    let none = || Cell::from("–").class("n");
    value.map_or_else(none, |value| number(Some(value), text))
}

/// Renders a table that scrolls within the page. The first cell of a row is its heading. Of the
/// items the first [`MOST_ROWS`] are shown, and the others counted.
pub(crate) fn table<T>(
    [name, class]: [&str; 2],
    heads: &[Cell],
    items: impl ExactSizeIterator<Item = T>,
    row: impl Fn(T) -> Vec<Cell>,
) -> Markup {
    let rest = items.len().saturating_sub(MOST_ROWS);
    let rows: Vec<_> = items.take(MOST_ROWS).map(row).collect();
    let is_number = |at: usize| rows.iter().any(|row| row[at].is_number());
    html! {
        div.scroll role="region" aria-label=(name) tabindex="0" {
            table class=(class) {
                thead { tr { @for (at, Cell { about, body, .. }) in heads.iter().enumerate() {
                    th scope="col" class=[is_number(at).then_some("n")] title=[about] { (body) }
                } } }
                tbody { @for row in &rows { (cells(row)) } }
            }
        }
        (cut(rest))
    }
}

fn cells(row: &[Cell]) -> Markup {
    html! {
        tr { @for (at, Cell { key, class, body, .. }) in row.iter().enumerate() {
            @if at == 0 { th scope="row" class=[class] { (body) } }
            @else { td class=[class] data-v=[key.map(|key| format!("{key:.6}"))] { (body) } }
        } }
    }
}

/// Renders a fact of a list of facts.
pub(crate) fn fact(name: &str, value: impl Render) -> Markup {
    html! { dt { (name) } dd { (value) } }
}

/// Counts what is left out of a list.
pub(crate) fn cut(rest: usize) -> Markup {
    html! {
        @if rest > 0 { p.cut { "and " (format::count(rest as u64)) " more, see report.json" } }
    }
}

/// Returns at most `most` items, in their order; those that need a look are chosen first.
pub(crate) fn chosen<T>(items: &[T], most: usize, needs_a_look: impl Fn(&T) -> bool) -> Vec<&T> {
    let items = items.iter().enumerate();
    let (first, others): (Vec<_>, Vec<_>) = items.partition(|(_, item)| needs_a_look(item));
    let mut chosen: Vec<_> = first.into_iter().chain(others).take(most).collect();
    chosen.sort_by_key(|(at, _)| *at);
    chosen.into_iter().map(|(_, item)| item).collect()
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

/// What stays as it is in a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Returns a path of a journal, relative to the run folder or absolute, as a reference that can
/// only lead to a file: it has no scheme, no host, and nothing that begins a query or a fragment.
pub(crate) fn href(path: &str) -> String {
    let start = if path.starts_with('/') { "/" } else { "./" };
    let path = utf8_percent_encode(path.trim_start_matches('/'), PLAIN);
    format!("{start}{path}")
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
