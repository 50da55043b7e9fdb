//! The page that asks for the token.

use maud::html;

use crate::page::document;

/// What the page may do: send the token.
const LOADS: &str = "form-action 'self'; img-src data:";

/// Renders the page. `is_wrong` says that the last token was not that of the run.
pub fn door(is_wrong: bool) -> String {
    let body = html! {
        body.door {
            h1 { "rrun live" }
            @if is_wrong { p.bad role="alert" { "This is not the token of the run." } }
            form method="post" action="login" {
                label { "Token " input type="password" name="token" autocomplete="current-password" required autofocus; }
                button type="submit" { "Show the run" }
            }
            p.muted { "It is the value of RRUN_PAGE_TOKEN with which the run was started." }
        }
    };
    document::document("Token · rrun live", &door_policy(), &body)
}

/// Returns the content security policy of the page, which is also a header of it.
pub fn door_policy() -> String {
    document::policy(LOADS)
}
