//! The content security policies of the live page. Their hashes are computed, because the policy is
//! a header, too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jobs::sha256;

use crate::page::document::STYLE;
use crate::page::live::{LIVE_SCRIPT, LIVE_STYLE};

/// Returns the policy of the page: its own styles and script by their hashes, and what its server
/// has.
pub fn policy() -> String {
    format!(
        "default-src 'none'; base-uri 'none'; form-action 'none'; connect-src 'self'; \
         img-src 'self' data:; media-src 'self'; style-src {}; script-src {}",
        styles(),
        source(LIVE_SCRIPT)
    )
}

/// Returns the policy of the page that asks for the token.
pub fn door_policy() -> String {
    format!(
        "default-src 'none'; base-uri 'none'; form-action 'self'; img-src data:; style-src {}",
        styles()
    )
}

fn styles() -> String {
    format!("{} {}", source(STYLE), source(LIVE_STYLE))
}

fn source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(sha256::digest(text)))
}
