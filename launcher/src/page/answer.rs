//! Answers a request: judges who asks, and does what is asked for.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response, StatusCode};
use report::page::live::policy;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::page::access::Judgement;
use crate::page::files::SentFile;
use crate::page::reply::{Body, ask, html, not_found, plain};
use crate::page::route::Route;
use crate::page::send::send;
use crate::page::shared::Shared;
use crate::page::{events, forms, request};

/// Pause before the answer to a wrong token.
pub(super) const WRONG_TOKEN: Duration = Duration::from_secs(1);

/// Time for the first look at the run folder.
const FIRST_LOOK: Duration = Duration::from_secs(60);

/// Answers a request.
pub(super) async fn answer(
    request: Request<Incoming>,
    shared: &Arc<Shared>,
    streams: &Arc<Semaphore>,
) -> Response<Body> {
    let uri = request.uri();
    let route = Route::of(request.method(), uri.path(), uri.query());
    let mut response = match (
        shared.access.judge(request::claims(request.headers())),
        route,
    ) {
        (Judgement::OtherHost, _) => plain(
            StatusCode::MISDIRECTED_REQUEST,
            "this page is for this machine: open it by its address, or set RRUN_PAGE_TOKEN",
        ),
        (_, Route::Login) => forms::login(request, shared).await,
        (Judgement::WrongToken, _) => {
            sleep(WRONG_TOKEN).await;
            plain(StatusCode::UNAUTHORIZED, "this is not the token of the run")
        }
        (Judgement::TokenNeeded, Route::Page) => ask(StatusCode::UNAUTHORIZED, false),
        (Judgement::TokenNeeded, _) => plain(StatusCode::UNAUTHORIZED, "the token is needed"),
        (Judgement::Welcome, route) => welcome(route, request, shared, streams).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let nothing = HeaderValue::from_static("default-src 'none'; sandbox");
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(nothing);
    response
}

/// Answers somebody who may see the page.
async fn welcome(
    route: Route,
    request: Request<Incoming>,
    shared: &Arc<Shared>,
    streams: &Arc<Semaphore>,
) -> Response<Body> {
    match route {
        Route::Page => page(shared).await,
        Route::Events { seen } => subscribe(&request, seen, shared, streams),
        Route::Picture { rank, env } => {
            let path = shared.folder.picture(rank, env);
            send(&request, move || SentFile::open(&path, "image/png")).await
        }
        Route::Hang(number) => {
            let path = shared.folder.hang_report(number);
            send(&request, move || {
                SentFile::open(&path, "text/plain; charset=utf-8")
            })
            .await
        }
        Route::File(name) => {
            let (files, folder) = (shared.files(), shared.folder.clone());
            send(&request, move || {
                SentFile::named(&files, folder.root(), &name)
            })
            .await
        }
        Route::Command => forms::command(request, shared).await,
        Route::OtherMethod => plain(StatusCode::METHOD_NOT_ALLOWED, "another method is expected"),
        Route::NotFound | Route::Login => not_found(),
    }
}

/// Answers with the page, when there is something to show.
async fn page(shared: &Arc<Shared>) -> Response<Body> {
    let mut watcher = shared.watch();
    let first = async {
        loop {
            if let Some(document) = shared.document() {
                return document;
            }
            if !watcher.changed().await {
                return Err("the launch has ended".to_owned());
            }
        }
    };
    match timeout(FIRST_LOOK, first).await {
        Ok(Ok(document)) => html(StatusCode::OK, document, &policy()),
        Ok(Err(reason)) => plain(StatusCode::SERVICE_UNAVAILABLE, &reason),
        Err(_) => plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "the run folder does not answer",
        ),
    }
}

fn subscribe(
    request: &Request<Incoming>,
    seen: Option<String>,
    shared: &Arc<Shared>,
    streams: &Arc<Semaphore>,
) -> Response<Body> {
    let Ok(permit) = Arc::clone(streams).try_acquire_owned() else {
        return plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many browsers look at this run",
        );
    };
    // What the browser has seen since it opened the page is in the header.
    let last = request.headers().get("last-event-id");
    let last = last.and_then(|last| last.to_str().ok()).map(str::to_owned);
    let seen = last.or(seen).map_or(0, |event| shared.seen(&event));
    let stream = events::stream(shared.watch(), seen, permit);
    let body = StreamBody::new(stream).map_err(|never: Infallible| -> io::Error { match never {} });
    let mut response = Response::new(body.boxed_unsync());
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
