//! Sends a file, or the part of it that a request asks for.

use std::io;
use std::ops::Range;

use futures_util::stream::unfold;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::task::spawn_blocking;

use crate::page::files::{Asked, SentFile};
use crate::page::reply::{Body, not_found};
use crate::page::request;

/// Sends a file, or the part of it that the request asks for.
pub(super) async fn send(
    request: &Request<Incoming>,
    open: impl FnOnce() -> Option<SentFile> + Send + 'static,
) -> Response<Body> {
    let Ok(Some(file)) = spawn_blocking(open).await else {
        return not_found();
    };
    let (bytes, kind) = (file.bytes, file.kind);
    let asked = Asked::of(request::text(request.headers(), &header::RANGE), bytes);
    let (status, range) = match asked {
        Asked::Whole => (StatusCode::OK, 0..bytes),
        Asked::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Asked::Outside => (StatusCode::RANGE_NOT_SATISFIABLE, 0..0),
    };
    let length = range.end - range.start;
    let place = match status {
        StatusCode::PARTIAL_CONTENT => {
            Some(format!("bytes {}-{}/{bytes}", range.start, range.end - 1))
        }
        StatusCode::RANGE_NOT_SATISFIABLE => Some(format!("bytes */{bytes}")),
        _ => None,
    };
    let mut response = Response::new(chunks(file, range));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_LENGTH, length.into());
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(place) = place.and_then(|place| HeaderValue::try_from(place).ok()) {
        headers.insert(header::CONTENT_RANGE, place);
    }
    response
}

/// Reads a file piece by piece, as the connection takes it.
fn chunks(file: SentFile, range: Range<u64>) -> Body {
    let chunks = unfold((file, range), |(file, range)| async move {
        if range.is_empty() {
            return None;
        }
        let read = spawn_blocking(move || {
            let bytes = file.read(&range);
            (bytes, file, range)
        });
        let (bytes, file, range) = read.await.ok()?;
        match bytes {
            Ok(bytes) if bytes.is_empty() => {
                let shorter = io::Error::from(io::ErrorKind::UnexpectedEof);
                Some((Err(shorter), (file, 0..0)))
            }
            Ok(bytes) => {
                let rest = range.start + bytes.len() as u64..range.end;
                Some((Ok(Frame::data(bytes)), (file, rest)))
            }
            Err(err) => Some((Err(err), (file, 0..0))),
        }
    });
    StreamBody::new(chunks).boxed_unsync()
}
