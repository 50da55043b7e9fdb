//! The form of a page: one HTML document with its style and script in it, and a content security
//! policy that allows these by their hashes, and nothing from elsewhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jobs::sha256;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");

/// The content of one element of a page: a section, or its head. Without content it is hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Id of the element with the content.
    pub id: &'static str,
    /// Its name in the navigation; empty for the head of a page.
    pub short: &'static str,
    /// Its heading; empty for the head of a page.
    pub name: &'static str,
    /// Its content.
    pub html: String,
}

impl Fragment {
    /// Creates a fragment from its id, its name in the navigation, and its heading.
    pub(crate) fn new([id, short, name]: [&'static str; 3], body: Markup) -> Self {
        Self {
            id,
            short,
            name,
            html: body.into_string(),
        }
    }

    fn render(&self) -> Markup {
        let Self { id, name, html, .. } = self;
        html! {
            section id={ (id) "-part" } aria-labelledby={ (id) "-name" } hidden[html.is_empty()] {
                h2 id={ (id) "-name" } { (name) }
                div id=(id) { (PreEscaped(html)) }
            }
        }
    }
}

/// A page: everything but its form comes from its maker.
pub(crate) struct Document<'a> {
    pub(crate) title: &'a str,
    /// What may be loaded beside style and script, as directives of the policy.
    pub(crate) loads: &'a str,
    /// Number of the newest event that the page contains, if it goes on.
    pub(crate) seen: Option<&'a str>,
    pub(crate) header: Markup,
    pub(crate) footer: Markup,
    pub(crate) sections: &'a [Fragment],
}

impl Document<'_> {
    pub(crate) fn render(&self) -> String {
        let body = html! {
            body data-seen=[self.seen] {
                @for first in self.sections.iter().take(1) {
                    a.skip href={ "#" (first.id) "-part" } { "Skip to the results" }
                }
                header { (self.header) }
                nav aria-label="Sections" { ul {
                    @for Fragment { id, short, html, .. } in self.sections {
                        li hidden[html.is_empty()] { a href={ "#" (id) "-part" } { (short) } }
                    }
                } }
                main { @for section in self.sections { (section.render()) } }
                footer { p { (self.footer) } }
                script { (PreEscaped(SCRIPT)) }
            }
        };
        document(self.title, &policy(self.loads), &body)
    }
}

/// Renders a document around a body.
pub(crate) fn document(title: &str, policy: &str, body: &Markup) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            (body)
        }
    };
    document.into_string()
}

/// Returns the policy of a page that loads what the directives `loads` allow.
pub(crate) fn policy(loads: &str) -> String {
    let [style, script] = [STYLE, SCRIPT].map(|text| STANDARD.encode(sha256::digest(text)));
    format!(
        "default-src 'none'; base-uri 'none'; {loads}; style-src 'sha256-{style}'; \
         script-src 'sha256-{script}'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within<'a>(page: &'a str, [from, to]: [&str; 2]) -> &'a str {
        let (_, rest) = page.split_once(from).unwrap();
        rest.split_once(to).unwrap().0
    }

    #[test]
    fn only_the_own_style_and_script_are_allowed() {
        let document = Document {
            title: "a<b>",
            loads: "form-action 'none'",
            seen: None,
            header: html! {},
            footer: html! {},
            sections: &[],
        };
        let page = document.render();
        let policy = within(&page, ["Security-Policy\" content=\"", "\""]);
        for element in ["style", "script"] {
            let text = within(&page, [&format!("<{element}>"), "</"]);
            let hash = STANDARD.encode(sha256::digest(text));
            let source = format!("{element}-src 'sha256-{hash}'");
            assert!(policy.contains(&source), "{source}: {policy}");
        }
        assert!(policy.starts_with("default-src 'none'; base-uri 'none'; form-action 'none'; "));
        assert!(page.contains("<title>a&lt;b&gt;</title>"));
    }
}
