//! What is read of a request: its claims, and the little body of a form.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName};
use tokio::time::timeout;

use crate::page::access::Claims;

/// Most bytes of a body: a token, or a command with the name of a job.
const MOST_BYTES: usize = 8192;

/// Time for a body to arrive.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns what a request says of its sender.
pub(super) fn claims(headers: &HeaderMap) -> Claims<'_> {
    Claims {
        host: text(headers, &HOST),
        authorization: text(headers, &AUTHORIZATION),
        cookie: text(headers, &COOKIE),
    }
}

/// Returns the value of a header; an empty text if it is not one.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let value = headers.get(name)?;
    Some(value.to_str().unwrap_or(""))
}

/// Reads a body; `None` if it is too large, too slow, or breaks off.
pub(super) async fn body(request: Request<Incoming>) -> Option<Bytes> {
    let body = Limited::new(request.into_body(), MOST_BYTES);
    let read = timeout(PATIENCE, body.collect()).await.ok()?;
    Some(read.ok()?.to_bytes())
}

/// Returns the value of a field of a form (`application/x-www-form-urlencoded`).
pub(super) fn field(form: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(form).ok()?;
    let mut pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || (rest.next()? as char).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_and_decoded() {
        assert_eq!(
            field(b"a=1&token=x%2By+z", "token").as_deref(),
            Some("x+y z")
        );
        for form in [
            &b"token"[..],
            b"",
            b"token=%",
            b"token=%zz",
            b"token=%ff",
            b"\xff=1",
        ] {
            assert_eq!(field(form, "token"), None, "{form:?}");
        }
    }
}
