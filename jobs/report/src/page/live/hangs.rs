//! Shows the launcher's reports of ranks that hang.

use maud::{Markup, html};

use crate::page::live::HangNote;
use jobs::format;

/// Most reports that are shown.
const MOST: usize = 8;

/// Returns nothing if there are none.
pub(super) fn section(hangs: &[HangNote]) -> Markup {
    html! {
        @if !hangs.is_empty() {
            p.lead {
                (format::counted(hangs.len() as u64, "report", "reports")) " of ranks that were silent, or on request; the last one first."
            }
            @for HangNote { number, text } in hangs.iter().take(MOST) {
                details.hang data-key=(number) {
                    summary { "Report " (number) ": " (title(text)) }
                    pre { (text) }
                    p { a href={ "./hang/" (number) } { "Whole report" } }
                }
            }
        }
    }
}

/// Returns the first line that says something.
fn title(text: &str) -> &str {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("empty")
}
