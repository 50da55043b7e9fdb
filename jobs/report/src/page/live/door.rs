//! The page that asks for the token.

use maud::{DOCTYPE, html};

use crate::page::live::policy::door_policy;
use crate::page::live::prelude;

/// Renders the page. `is_wrong` says that the last token was not that of the run.
pub fn door(is_wrong: bool) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            (prelude(&door_policy(), "Token"))
            body.door {
                h1 { "rrun live" }
                @if is_wrong { p.bad role="alert" { "This is not the token of the run." } }
                form method="post" action="login" {
                    label { "Token " input type="password" name="token" autocomplete="current-password" required autofocus; }
                    button type="submit" { "Show the run" }
                }
                p.muted { "It is the value of RRUN_PAGE_TOKEN with which the run was started." }
            }
        }
    };
    document.into_string()
}
