//! The client of the model server. It asks until the server answers or the limits are reached. It
//! blocks and is called from separate threads.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::policy::agent::chat::{ChatMessage, ChatModel, Completion, reason};
use crate::policy::agent::complaints::Complaints;
use crate::policy::agent::retry::{AttemptFailure, Attempts, RetryLimits};
use crate::policy::remote::read_certificates;
use crate::policy::{Lifeline, PolicyError};

/// Maximum size of an answer in bytes.
const LARGEST_ANSWER: u64 = 16 << 20;

/// Timeout for connecting; a reachable server accepts at once.
const CONNECT: Duration = Duration::from_secs(10);

/// The server's address, and the limits for requests to it.
#[derive(Clone, Debug)]
pub(super) struct ServerTerms {
    /// The URL of the endpoint: `http://host:port/v1/chat/completions`.
    pub(super) url: String,
    /// Timeout of one request, from connecting to the last byte.
    pub(super) timeout: Duration,
    /// Limits for retries.
    pub(super) limits: RetryLimits,
    /// Root certificates for a server with HTTPS; if not given, those that browsers trust.
    pub(super) certificates: Option<Certificates>,
    /// Maximum number of simultaneous requests.
    pub(super) max_concurrent_requests: usize,
}

/// Certificates of authorities.
pub(super) type Certificates = Arc<Vec<Certificate<'static>>>;

/// Reads certificates from a PEM file.
///
/// # Errors
/// Returns an error if the file cannot be read or contains no certificate.
pub(super) fn read_authorities(path: &Path) -> Result<Certificates, PolicyError> {
    let read = read_certificates(path)?;
    let known = read
        .iter()
        .map(|read| Certificate::from_der(read).to_owned());
    Ok(Arc::new(known.collect()))
}

/// An API key, which never appears in messages.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ApiKey(String);

impl ApiKey {
    pub(super) fn new(key: String) -> Self {
        Self(key)
    }

    /// Returns a text of the server with the key removed, because some servers repeat it.
    fn hide(&self, text: &str) -> String {
        text.replace(&self.0, "***")
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(***)")
    }
}

/// The client of a model server.
pub(super) struct ModelClient {
    terms: ServerTerms,
    key: Option<ApiKey>,
    agent: Agent,
    /// One permit for each request under way; closed once answers are no longer needed.
    permits: Semaphore,
    model: ChatModel,
    schema: Value,
    /// Whether the server has refused `response_format` and answered without it.
    is_plain: AtomicBool,
    complaints: Mutex<Complaints>,
    lifeline: Lifeline,
}

/// An answer, with the effort it took.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TimedCompletion {
    /// The completion from the server.
    pub(super) completion: Completion,
    /// Number of requests that failed before it.
    pub(super) retries: u32,
    /// Time from the first request to the answer, including waits and the rank's own queue.
    pub(super) took: Duration,
    /// A note for the user, given only once.
    pub(super) note: Option<String>,
}

/// A failed attempt.
struct AttemptError {
    failure: AttemptFailure,
    /// The reason as a clause: "answered with status 500: …".
    reason: String,
}

impl ModelClient {
    /// Creates a client that has not sent any request. The user is told of failed ones through
    /// `lifeline`.
    pub(super) fn new(
        terms: ServerTerms,
        key: Option<ApiKey>,
        model: ChatModel,
        schema: Value,
        lifeline: Lifeline,
    ) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT.min(terms.timeout)))
            .timeout_global(Some(terms.timeout))
            .max_idle_connections_per_host(terms.max_concurrent_requests.min(64))
            .max_redirects(0)
            .user_agent(concat!("rrun/", env!("CARGO_PKG_VERSION")));
        // A proxy from the environment variables is for remote hosts only.
        let config = if is_local(&terms.url) {
            config.proxy(None)
        } else {
            config
        };
        let config = match &terms.certificates {
            Some(certificates) => {
                let roots = RootCerts::Specific(Arc::clone(certificates));
                config.tls_config(TlsConfig::builder().root_certs(roots).build())
            }
            None => config,
        };
        Self {
            agent: config.build().into(),
            permits: Semaphore::new(terms.max_concurrent_requests),
            key,
            model,
            schema,
            terms,
            is_plain: AtomicBool::new(false),
            complaints: Mutex::default(),
            lifeline,
        }
    }

    /// Ends waiting requests without an answer.
    pub(super) fn close(&self) {
        self.permits.close();
    }

    /// Sends a request and retries until there is an answer.
    ///
    /// # Errors
    /// Returns the reason why there is none, with the server's address.
    pub(super) fn ask(&self, messages: &[ChatMessage]) -> Result<TimedCompletion, String> {
        #[expect(
            clippy::disallowed_methods,
            reason = "how long an answer takes is told"
        )]
        let started = std::time::Instant::now();
        let waits = tokio::runtime::Builder::new_current_thread().build();
        let waits = waits.map_err(|err| err.to_string())?;
        let mut attempts = Attempts::new(self.terms.limits);
        loop {
            let asked = {
                let closed =
                    |_| format!("the model server at {} is no longer used", self.terms.url);
                let _permit = waits.block_on(self.permits.acquire()).map_err(closed)?;
                self.once(messages)
            };
            let fault = match asked {
                Ok((completion, note)) => {
                    let back = self.complaints().on_answer();
                    self.say(back);
                    let retries = attempts.failed();
                    return Ok(TimedCompletion {
                        completion,
                        retries,
                        took: started.elapsed(),
                        note,
                    });
                }
                Err(fault) => fault,
            };
            let reason = self
                .key
                .as_ref()
                .map_or(fault.reason.clone(), |key| key.hide(&fault.reason));
            tracing::warn!(url = self.terms.url, reason, "model server");
            let Some(wait) = attempts.after(&fault.failure) else {
                let times = if attempts.failed() > 1 {
                    format!(
                        ", {} requests in {:.0} s",
                        attempts.failed(),
                        started.elapsed().as_secs_f64()
                    )
                } else {
                    String::new()
                };
                let url = &self.terms.url;
                return Err(format!("the model server at {url} {reason}{times}"));
            };
            #[expect(
                clippy::disallowed_methods,
                reason = "how often it is said depends on the time"
            )]
            let now = std::time::Instant::now();
            let complaint = self.complaints().on_failure(&reason, now);
            self.say(complaint.as_deref());
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread of its own waits before it asks again"
            )]
            std::thread::sleep(wait);
        }
    }

    fn complaints(&self) -> MutexGuard<'_, Complaints> {
        self.complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, text: Option<&str>) {
        if let Some(text) = text {
            self.lifeline
                .say(format!("the model server at {} {text}", self.terms.url));
        }
    }

    /// Sends one request, and a second one without a schema if the server does not support schemas.
    fn once(&self, messages: &[ChatMessage]) -> Result<(Completion, Option<String>), AttemptError> {
        if self.is_plain.load(Ordering::Relaxed) {
            return Ok((self.post(&self.model.body(messages, None))?, None));
        }
        match self.post(&self.model.body(messages, Some(&self.schema))) {
            Err(AttemptError {
                failure:
                    AttemptFailure::Status {
                        code: 400 | 404 | 415 | 422 | 501,
                        ..
                    },
                reason,
            }) => {
                // If the schema was not the cause, the server refuses this request too and gives
                // the reason.
                let completion = self.post(&self.model.body(messages, None))?;
                let is_first = !self.is_plain.swap(true, Ordering::Relaxed);
                let note = || {
                    format!(
                        "the model server at {} does not accept `response_format` (it {reason}): \
                         the prompt describes the format instead",
                        self.terms.url
                    )
                };
                Ok((completion, is_first.then(note)))
            }
            other => Ok((other?, None)),
        }
    }

    fn post(&self, body: &Value) -> Result<Completion, AttemptError> {
        let mut request = self
            .agent
            .post(&self.terms.url)
            .header("Content-Type", "application/json");
        if let Some(ApiKey(key)) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let mut response = request
            .send(body.to_string())
            .map_err(|err| silence(&err, self.terms.timeout))?;
        let bytes = response
            .body_mut()
            .with_config()
            .limit(LARGEST_ANSWER)
            .read_to_vec();
        let bytes = bytes.map_err(|err| silence(&err, self.terms.timeout))?;
        let code = response.status().as_u16();
        if code == 200 {
            // A truncated answer may be complete the next time.
            return Completion::read(&bytes).map_err(|reason| AttemptError {
                failure: AttemptFailure::Silence,
                reason,
            });
        }
        let why = reason(&bytes);
        let why = if why.is_empty() {
            String::new()
        } else {
            format!(": {why}")
        };
        let failure = AttemptFailure::Status {
            code,
            retry_after: retry_after(&response),
        };
        Err(AttemptError {
            failure,
            reason: format!("answered with status {code}{why}"),
        })
    }
}

fn retry_after<T>(response: &Response<T>) -> Option<Duration> {
    let seconds: f64 = response
        .headers()
        .get("retry-after")?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn silence(err: &ureq::Error, timeout: Duration) -> AttemptError {
    let (failure, reason) = match err {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => (
            AttemptFailure::Silence,
            "accepts no connection in time".to_owned(),
        ),
        ureq::Error::Timeout(_) => (
            AttemptFailure::Silence,
            format!("did not answer within {} s", timeout.as_secs_f64()),
        ),
        ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::BodyExceedsLimit(_) => {
            (AttemptFailure::Hopeless, format!("cannot be asked: {err}"))
        }
        err => (AttemptFailure::Silence, format!("cannot be reached: {err}")),
    };
    AttemptError { failure, reason }
}

/// Returns whether a URL refers to this machine.
fn is_local(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    ["localhost", "127.", "[::1]"]
        .iter()
        .any(|name| host.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_shows_nowhere() {
        let key = ApiKey::new("sk-secret".to_owned());
        assert_eq!(format!("{key:?}"), "Key(***)");
        assert_eq!(
            key.hide("Incorrect API key: sk-secret."),
            "Incorrect API key: ***."
        );
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        let own = [
            "http://localhost:8000/v1",
            "http://127.0.0.1/v1",
            "https://[::1]:1",
        ];
        assert!(own.into_iter().all(is_local));
        assert!(!is_local("https://api.openai.com/v1"));
    }

    #[test]
    fn a_wait_is_read_in_seconds() {
        let response = |value: &str| {
            Response::builder()
                .header("Retry-After", value)
                .body(())
                .unwrap()
        };
        for (value, millis) in [
            ("2", Some(2000)),
            ("0.5", Some(500)),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("-3", None),
        ] {
            let wanted = millis.map(Duration::from_millis);
            assert_eq!(retry_after(&response(value)), wanted, "{value}");
        }
    }
}
