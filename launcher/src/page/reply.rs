//! Whole answers: pages and plain texts.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use report::page::live::{door, door_policy};

/// The body of every answer.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(super) fn ask(status: StatusCode, is_wrong: bool) -> Response<Body> {
    html(status, door(is_wrong), &door_policy())
}

pub(super) fn html(status: StatusCode, text: String, policy: &str) -> Response<Body> {
    let mut response = whole(status, "text/html; charset=utf-8", text.into());
    if let Ok(policy) = HeaderValue::try_from(policy) {
        let name = header::CONTENT_SECURITY_POLICY;
        response.headers_mut().insert(name, policy);
    }
    response
}

pub(super) fn not_found() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "there is nothing here")
}

pub(super) fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let text = match text {
        "" => String::new(),
        text => format!("rrun: {text}\n"),
    };
    whole(status, "text/plain; charset=utf-8", text.into())
}

fn whole(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    let body = Full::new(body).map_err(|never: Infallible| -> io::Error { match never {} });
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
