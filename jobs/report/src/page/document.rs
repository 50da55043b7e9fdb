//! The form of a page: one HTML document with its style and script in it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

pub(crate) const STYLE: &str = include_str!("style.css");
pub(super) const SCRIPT: &str = include_str!("script.js");

/// Content security policy with the SHA-256 of [`STYLE`] and [`SCRIPT`] in base64, as `openssl dgst
/// -sha256 -binary FILE | base64` prints them. A test compares them.
pub(super) const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; media-src 'self' file: data:; \
    style-src 'sha256-aXUcI/BBABDEx2+xieTVc5VjZ+6fWTvgw6JMKEfbyjo='; \
    script-src 'sha256-O3WMLRCFCWaYWsScuCFt2Q0qLN5IcuE5jEy0alHglzo='";

/// A page: everything but its form comes from its maker.
pub(crate) struct Document<'a> {
    pub(crate) title: &'a str,
    /// Anchor of the section with the results.
    pub(crate) first: &'a str,
    pub(crate) header: Markup,
    pub(crate) footer: Markup,
    pub(crate) sections: &'a [Section],
}

/// A section of a page.
pub(crate) struct Section {
    /// Anchor.
    pub(crate) id: &'static str,
    /// Name in the navigation.
    pub(crate) short: &'static str,
    /// Heading.
    pub(crate) name: &'static str,
    pub(crate) body: Markup,
}

impl Document<'_> {
    /// Renders the page with the style and script that all pages have.
    pub(crate) fn render(&self) -> String {
        let document = html! {
            (DOCTYPE)
            html lang="en" {
                (head(POLICY, &html! { title { (self.title) " · rrun" } }, &[STYLE]))
                body {
                    a.skip href={ "#" (self.first) } { "Skip to the results" }
                    header { (self.header) }
                    nav aria-label="Sections" {
                        ul { @for Section { id, short, .. } in self.sections { li { a href={ "#" (id) } { (short) } } } }
                    }
                    main { @for section in self.sections { (section.render()) } }
                    footer { (self.footer) }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        };
        document.into_string()
    }
}

/// Renders the head of a page. `title` is its title, and what else comes before the styles.
pub(crate) fn head(policy: &str, title: &Markup, styles: &[&str]) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta http-equiv="Content-Security-Policy" content=(policy);
            meta name="color-scheme" content="light dark";
            meta name="referrer" content="no-referrer";
            (title)
            @for style in styles { style { (PreEscaped(style)) } }
        }
    }
}

impl Section {
    /// Takes anchor, name in the navigation, heading, and content.
    pub(crate) fn of(
        (id, short, name, body): (&'static str, &'static str, &'static str, Markup),
    ) -> Self {
        Self {
            id,
            short,
            name,
            body,
        }
    }

    pub(super) fn render(&self) -> Markup {
        let Self { id, name, body, .. } = self;
        html! { section id=(id) aria-labelledby={ (id) "-name" } { h2 id={ (id) "-name" } { (name) } (body) } }
    }
}
