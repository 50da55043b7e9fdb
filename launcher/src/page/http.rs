//! Accepts connections within limits, judges who asks, and answers.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use report::page::live::{door, door_policy, policy};
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::page::access::{Claims, Judgement};
use crate::page::files::{SentFile, send};
use crate::page::state::{PageState, obey};

/// Maximum number of connections; a browser opens up to six.
const CONNECTIONS: usize = 96;

/// Time for the head of a request, and between two requests of a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time for a body to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(5);

/// Time in which a peer has to take what is sent to it, in milliseconds.
const STALL_MS: u32 = 20_000;

/// Bytes of a request's head, and of an answer that wait to be sent.
const BUFFER: usize = 16 << 10;

/// Bytes that the kernel keeps for a peer that does not take them.
const SEND_BUFFER: usize = 256 << 10;

/// Most bytes of a body: a token, or a command with the name of a job.
const MOST_BYTES: usize = 8192;

/// Pause after a failed `accept`, for example when the process is out of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Pause before the answer to a wrong token.
const WRONG_TOKEN: Duration = Duration::from_secs(1);

/// Longest wait for something new: whoever asks again at once counts as one who looks.
pub(super) const NEWS: Duration = Duration::from_secs(4);

/// Time for the first look at the run folder.
const FIRST_LOOK: Duration = Duration::from_secs(60);

/// The type of texts.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// The body of every answer.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Serves everybody who connects.
pub(super) async fn accept(listener: TcpListener, page: &Arc<PageState>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(BACK_OFF).await;
            continue;
        };
        // Without a free place the connection is closed.
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            continue;
        };
        let page = Arc::clone(page);
        tokio::spawn(async move {
            if let Err(err) = serve(stream, page, STALL_MS).await {
                tracing::debug!(%err, "a connection of the page has ended");
            }
            drop(permit);
        });
    }
}

async fn serve(stream: TcpStream, page: Arc<PageState>, stall_ms: u32) -> anyhow::Result<()> {
    sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER)?;
    // A peer that takes nothing is disconnected, see tcp(7).
    sockopt::set_tcp_user_timeout(&stream, stall_ms)?;
    stream.set_nodelay(true)?;
    let on_request = move |request| {
        let page = Arc::clone(&page);
        async move { Ok::<_, Infallible>(answer(request, &page).await) }
    };
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(BUFFER)
        .max_headers(64);
    let io = TokioIo::new(stream);
    Ok(server.serve_connection(io, service_fn(on_request)).await?)
}

async fn answer(request: Request<Incoming>, page: &Arc<PageState>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let headers = request.headers();
    let judgement = page.access.judge(Claims {
        host: text(headers, &header::HOST),
        authorization: text(headers, &header::AUTHORIZATION),
        cookie: text(headers, &header::COOKIE),
    });
    let mut response = match (judgement, path.as_str()) {
        (Judgement::OtherHost, _) => plain(
            StatusCode::MISDIRECTED_REQUEST,
            "this page is for this machine: open it by its address, or set RRUN_PAGE_TOKEN",
        ),
        (_, "/login") if request.method() == Method::POST => login(request, page).await,
        (Judgement::WrongToken, _) => {
            sleep(WRONG_TOKEN).await;
            plain(StatusCode::UNAUTHORIZED, "this is not the token of the run")
        }
        (Judgement::TokenNeeded, "/") => ask_for_token(false),
        (Judgement::TokenNeeded, _) => plain(StatusCode::UNAUTHORIZED, "the token is needed"),
        (Judgement::Welcome, path) => welcome(path, request, page).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let nothing = HeaderValue::from_static("default-src 'none'; sandbox");
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(nothing);
    response
}

/// Answers somebody who may see the page.
async fn welcome(path: &str, request: Request<Incoming>, page: &Arc<PageState>) -> Response<Body> {
    let path = path.trim_start_matches('/');
    let is_posted = matches!(path, "command" | "login");
    match *request.method() {
        Method::POST if path == "command" => return command(request, page).await,
        Method::GET if !is_posted => {}
        _ => return plain(StatusCode::METHOD_NOT_ALLOWED, "another method is expected"),
    }
    match path {
        "" => return document(page).await,
        "news" => {
            let query = request.uri().query().unwrap_or_default();
            let seen = query.strip_prefix("seen=").unwrap_or_default();
            return whole(StatusCode::OK, "application/json", news(page, seen).await);
        }
        _ => {}
    }
    let range = text(request.headers(), &header::RANGE);
    let (path, page) = (path.to_owned(), Arc::clone(page));
    send(range, move || opened(&path, &page)).await
}

/// Opens the file that a path means: one that is made of numbers, or that a journal names.
fn opened(path: &str, page: &PageState) -> Option<SentFile> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["picture", rank, env] => {
            let picture = page.folder.picture(rank.parse().ok()?, env.parse().ok()?);
            SentFile::open(&picture, "image/png")
        }
        ["hang", number] => {
            let report = page.folder.hang_report(number.parse().ok()?);
            SentFile::open(&report, TEXT)
        }
        _ => {
            let name = percent_decode_str(path).decode_utf8().ok()?;
            let files = page.newest().files();
            SentFile::named(&files, page.folder.root(), &name)
        }
    }
}

/// Returns what has changed since the number `seen`, as soon as there is something, or nothing after
/// [`NEWS`].
async fn news(page: &PageState, seen: &str) -> String {
    let mut looks = page.asked();
    let newer = async { while !page.newest().is_newer(seen) && looks.changed().await.is_ok() {} };
    // Nothing new is an answer, too.
    let _ = timeout(NEWS, newer).await;
    page.newest().since(seen).to_string()
}

/// Answers with the page, when there is something to show.
async fn document(page: &PageState) -> Response<Body> {
    let mut looks = page.asked();
    let first = async {
        loop {
            let document = page.newest().document();
            if let Some(document) = document {
                return document;
            }
            if looks.changed().await.is_err() {
                return Err("the launch has ended".to_owned());
            }
        }
    };
    let answer = timeout(FIRST_LOOK, first).await;
    match answer.unwrap_or_else(|_| Err("the run folder does not answer".to_owned())) {
        Ok(document) => html(StatusCode::OK, document, &policy()),
        Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

/// Takes the token of the form, and sends the browser to the page.
async fn login(request: Request<Incoming>, page: &PageState) -> Response<Body> {
    let Some(form) = body(request).await else {
        return plain(StatusCode::BAD_REQUEST, "the form is incomplete");
    };
    let form = String::from_utf8_lossy(&form);
    let token = form.strip_prefix("token=").unwrap_or_default().trim_end();
    let cookie = page.access.cookie().filter(|_| page.access.is_token(token));
    let Some(cookie) = cookie.and_then(|cookie| HeaderValue::try_from(cookie).ok()) else {
        sleep(WRONG_TOKEN).await;
        return ask_for_token(true);
    };
    let mut response = plain(StatusCode::SEE_OTHER, "");
    let headers = response.headers_mut();
    headers.insert(header::SET_COOKIE, cookie);
    headers.insert(header::LOCATION, HeaderValue::from_static("./"));
    response
}

/// Takes a command. A page from elsewhere cannot send JSON here without being asked for permission,
/// which nobody gives.
async fn command(request: Request<Incoming>, page: &Arc<PageState>) -> Response<Body> {
    if !page.has_buttons {
        let why = "commands need a token: start the run with RRUN_PAGE_TOKEN";
        return plain(StatusCode::FORBIDDEN, why);
    }
    if text(request.headers(), &header::CONTENT_TYPE) != Some("application/json") {
        let why = "application/json is expected";
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, why);
    }
    let Some(body) = body(request).await else {
        return plain(StatusCode::BAD_REQUEST, "the command is incomplete");
    };
    let page = Arc::clone(page);
    match spawn_blocking(move || obey(&body, &page)).await {
        Ok(Ok(())) => plain(StatusCode::NO_CONTENT, ""),
        Ok(Err(err)) => plain(StatusCode::BAD_REQUEST, &format!("{err:#}")),
        Err(_) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the command could not be carried out",
        ),
    }
}

/// Returns the value of a header; an empty text if it is not one.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    Some(headers.get(name)?.to_str().unwrap_or(""))
}

/// Reads a body; `None` if it is too large, too slow, or breaks off.
async fn body(request: Request<Incoming>) -> Option<Bytes> {
    let body = Limited::new(request.into_body(), MOST_BYTES);
    let read = timeout(BODY_PATIENCE, body.collect()).await.ok()?;
    Some(read.ok()?.to_bytes())
}

fn ask_for_token(is_wrong: bool) -> Response<Body> {
    html(StatusCode::UNAUTHORIZED, door(is_wrong), &door_policy())
}

pub(super) fn not_found() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "there is nothing here")
}

fn html(status: StatusCode, text: String, policy: &str) -> Response<Body> {
    let mut response = whole(status, "text/html; charset=utf-8", text);
    if let Ok(policy) = HeaderValue::try_from(policy) {
        let name = header::CONTENT_SECURITY_POLICY;
        response.headers_mut().insert(name, policy);
    }
    response
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let text = match text {
        "" => String::new(),
        text => format!("rrun: {text}\n"),
    };
    whole(status, TEXT, text)
}

fn whole(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let body = Full::from(text).map_err(|never: Infallible| -> io::Error { match never {} });
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::plan::server::PagePlan;

    #[test]
    fn a_peer_that_takes_nothing_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("logs")).unwrap();
        let film = std::fs::File::create(dir.path().join("logs/hang_1.txt")).unwrap();
        film.set_len(64 << 20).unwrap();
        let plan = PagePlan::new(([127, 0, 0, 1], 0).into(), None).unwrap();
        let page = Arc::new(PageState::new(&plan, dir.path(), "0a1b"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            peer.write_all(b"GET /hang/1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let err = serve(stream, page, 100).await.unwrap_err();
            let source = err
                .chain()
                .filter_map(|err| err.downcast_ref::<io::Error>())
                .next();
            assert_eq!(source.unwrap().kind(), io::ErrorKind::TimedOut, "{err:#}");
            assert!(peer.read(&mut [0; 1]).is_ok(), "what was sent is there");
        });
    }
}
