//! The model server: asked until it answers, or for as long as the limits say. Blocks; called from threads of its own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use super::chat::{Completion, Message, Model, reason};
use super::complaints::Complaints;
use super::permits::Permits;
use super::retry::{Attempts, Failure, Limits};
use crate::policy::{Lifeline, PolicyError};

/// Bytes of an answer, at most.
const LARGEST_ANSWER: u64 = 16 << 20;

/// Time for a connection, at most; a server that is there takes it at once.
const CONNECT: Duration = Duration::from_secs(10);

/// Where the server is, and how patient the rank is with it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Terms {
    /// `http://host:port/v1/chat/completions`.
    pub(super) url: String,
    /// For one request, from connecting to the last byte.
    pub(super) timeout: Duration,
    /// How often it is made again.
    pub(super) limits: Limits,
    /// Who vouches for a server with HTTPS; those that browsers know, if nobody is named.
    pub(super) certificates: Option<Certificates>,
    /// Requests at the same time.
    pub(super) max_concurrent_requests: usize,
}

/// Certificates of authorities, from a file.
#[derive(Clone, Debug)]
pub(super) struct Certificates {
    pem: Vec<u8>,
    known: Arc<Vec<Certificate<'static>>>,
}

impl PartialEq for Certificates {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl Certificates {
    /// Those of a file in PEM.
    ///
    /// # Errors
    /// [`PolicyError::File`] when it cannot be read, and when it has none.
    pub(super) fn read(path: &Path) -> Result<Self, PolicyError> {
        let refuse = |reason: String| PolicyError::File { path: path.to_owned(), reason };
        let pem = std::fs::read(path).map_err(|err| refuse(err.to_string()))?;
        let items = parse_pem(&pem).filter_map(Result::ok);
        let known: Vec<_> =
            items.filter_map(|item| if let PemItem::Certificate(one) = item { Some(one) } else { None }).collect();
        if known.is_empty() {
            return Err(refuse("it has no certificate in PEM".to_owned()));
        }
        Ok(Self { pem, known: Arc::new(known) })
    }
}

/// An API key, which no message shows.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn new(key: String) -> Self {
        Self(key)
    }

    /// A text of the server without the key, which some servers repeat.
    fn hide(&self, text: &str) -> String {
        text.replace(&self.0, "***")
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(***)")
    }
}

/// A model server.
pub(super) struct Server {
    terms: Terms,
    key: Option<Key>,
    agent: Agent,
    permits: Permits,
    model: Model,
    schema: Value,
    /// It has refused `response_format`, and answered without.
    is_plain: AtomicBool,
    /// Nobody waits for its answers any more.
    is_closed: AtomicBool,
    complaints: Mutex<Complaints>,
    lifeline: Lifeline,
}

/// An answer, and what it took.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answered {
    /// The answer.
    pub(super) completion: Completion,
    /// Requests that failed before it.
    pub(super) retries: u32,
    /// From the first request to the answer, waits and queue of the rank included.
    pub(super) took: Duration,
    /// What the user should know: said once.
    pub(super) note: Option<String>,
}

/// One failed attempt.
struct Fault {
    failure: Failure,
    /// As a clause: "answered with status 500: …".
    reason: String,
}

impl Server {
    /// Nothing is asked yet.
    pub(super) fn new(terms: Terms, key: Option<Key>, model: Model, schema: Value) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT.min(terms.timeout)))
            .timeout_global(Some(terms.timeout))
            .max_idle_connections_per_host(terms.max_concurrent_requests.min(64))
            .max_redirects(0)
            .user_agent(concat!("rrun/", env!("CARGO_PKG_VERSION")));
        // A proxy of the environment is for the world outside.
        let config = if is_local(&terms.url) { config.proxy(None) } else { config };
        let config = match &terms.certificates {
            Some(Certificates { known, .. }) => {
                let roots = RootCerts::Specific(Arc::clone(known));
                config.tls_config(TlsConfig::builder().root_certs(roots).build())
            }
            None => config,
        };
        let permits = Permits::new(terms.max_concurrent_requests);
        let (is_plain, is_closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let (complaints, lifeline) = (Mutex::default(), Lifeline::alone());
        let agent = config.build().into();
        Self { agent, permits, key, model, schema, terms, is_plain, is_closed, complaints, lifeline }
    }

    /// The same, which tells the user of requests that fail.
    pub(super) fn heard_on(self, lifeline: Lifeline) -> Self {
        Self { lifeline, ..self }
    }

    /// Lets questions that are waiting end without an answer.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Asks until there is an answer.
    ///
    /// # Errors
    /// Why there is none, with the server's address.
    pub(super) fn ask(&self, messages: &[Message]) -> Result<Answered, String> {
        #[expect(clippy::disallowed_methods, reason = "how long an answer takes is told")]
        let started = std::time::Instant::now();
        let mut attempts = Attempts::new(self.terms.limits);
        loop {
            let asked = {
                let _permit = self.permits.take();
                if self.is_closed.load(Ordering::Relaxed) {
                    return Err(format!("the model server at {} is not asked any more", self.terms.url));
                }
                self.once(messages)
            };
            let fault = match asked {
                Ok((completion, note)) => {
                    let back = self.complaints().on_answer();
                    self.say(back);
                    let retries = attempts.failed();
                    return Ok(Answered { completion, retries, took: started.elapsed(), note });
                }
                Err(fault) => fault,
            };
            let reason = self.key.as_ref().map_or(fault.reason.clone(), |key| key.hide(&fault.reason));
            tracing::warn!(url = self.terms.url, reason, "model server");
            let Some(wait) = attempts.after(&fault.failure) else {
                let times = if attempts.failed() > 1 {
                    format!(", {} requests in {:.0} s", attempts.failed(), started.elapsed().as_secs_f64())
                } else {
                    String::new()
                };
                return Err(format!("the model server at {} {reason}{times}", self.terms.url));
            };
            #[expect(clippy::disallowed_methods, reason = "how often it is said depends on the time")]
            let now = std::time::Instant::now();
            let complaint = self.complaints().on_failure(&reason, now);
            self.say(complaint.as_deref());
            #[expect(clippy::disallowed_methods, reason = "a thread of its own waits before it asks again")]
            std::thread::sleep(wait);
        }
    }

    fn complaints(&self) -> MutexGuard<'_, Complaints> {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, text: Option<&str>) {
        if let Some(text) = text {
            self.lifeline.say(format!("the model server at {} {text}", self.terms.url));
        }
    }

    /// One request; a second one without a schema if the server knows none.
    fn once(&self, messages: &[Message]) -> Result<(Completion, Option<String>), Fault> {
        if self.is_plain.load(Ordering::Relaxed) {
            return Ok((self.post(&self.model.body(messages, None))?, None));
        }
        match self.post(&self.model.body(messages, Some(&self.schema))) {
            Err(Fault { failure: Failure::Status { code: 400 | 404 | 415 | 422 | 501, .. }, reason }) => {
                // If it is not the schema's fault the server refuses this, too, and says why.
                let completion = self.post(&self.model.body(messages, None))?;
                let is_first = !self.is_plain.swap(true, Ordering::Relaxed);
                let note = || {
                    format!(
                        "the model server at {} takes no `response_format` (it {reason}): answers are asked for in words",
                        self.terms.url
                    )
                };
                Ok((completion, is_first.then(note)))
            }
            other => Ok((other?, None)),
        }
    }

    fn post(&self, body: &Value) -> Result<Completion, Fault> {
        let mut request = self.agent.post(&self.terms.url).header("Content-Type", "application/json");
        if let Some(Key(key)) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let mut response = request.send(body.to_string()).map_err(|err| silence(&err, self.terms.timeout))?;
        let bytes = response.body_mut().with_config().limit(LARGEST_ANSWER).read_to_vec();
        let bytes = bytes.map_err(|err| silence(&err, self.terms.timeout))?;
        let code = response.status().as_u16();
        if code == 200 {
            // Half an answer may be whole the next time.
            return Completion::read(&bytes).map_err(|reason| Fault { failure: Failure::Silence, reason });
        }
        let why = reason(&bytes);
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        let failure = Failure::Status { code, retry_after: retry_after(&response) };
        Err(Fault { failure, reason: format!("answered with status {code}{why}") })
    }
}

fn retry_after<T>(response: &Response<T>) -> Option<Duration> {
    let seconds: f64 = response.headers().get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn silence(err: &ureq::Error, timeout: Duration) -> Fault {
    match err {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            Fault { failure: Failure::Silence, reason: "takes no connection".to_owned() }
        }
        ureq::Error::Timeout(_) => {
            Fault { failure: Failure::Silence, reason: format!("did not answer within {} s", timeout.as_secs_f64()) }
        }
        ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::BodyExceedsLimit(_) => {
            Fault { failure: Failure::Hopeless, reason: format!("cannot be asked: {err}") }
        }
        err => Fault { failure: Failure::Silence, reason: format!("cannot be reached: {err}") },
    }
}

/// Whether a URL is of this machine.
fn is_local(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    ["localhost", "127.", "[::1]"].iter().any(|name| host.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_shows_nowhere() {
        let key = Key::new("sk-secret".to_owned());
        assert_eq!(format!("{key:?}"), "Key(***)");
        assert_eq!(key.hide("Incorrect API key: sk-secret."), "Incorrect API key: ***.");
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        assert!(["http://localhost:8000/v1", "http://127.0.0.1/v1", "https://[::1]:1"].into_iter().all(is_local));
        assert!(!is_local("https://api.openai.com/v1"));
    }

    #[test]
    fn a_wait_is_read_in_seconds() {
        let response = |value: &str| Response::builder().header("Retry-After", value).body(()).unwrap();
        assert_eq!(retry_after(&response("2")), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(&response("0.5")), Some(Duration::from_millis(500)));
        assert_eq!(retry_after(&response("Wed, 21 Oct 2026 07:28:00 GMT")), None);
        assert_eq!(retry_after(&response("-3")), None);
    }
}
