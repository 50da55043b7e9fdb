//! The client of the model server. It asks until the server answers or the limits are reached. It
//! blocks and is called from separate threads.
//!
//! ```text
//! 408, 409, 429, 5xx, timeout, no connection ─► wait (doubling, or `Retry-After`) ─► retry
//! anything else, or too many retries         ─► give up
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Semaphore;
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{RootCerts, TlsConfig};

use crate::clock::now;
use crate::policy::Lifeline;
use crate::policy::agent::chat::{self, ChatMessage, Completion, PngPicture};
use crate::policy::agent::{AgentSettings, lock};
use crate::policy::remote::Token;

/// Maximum size of an answer in bytes.
const LARGEST_ANSWER: u64 = 16 << 20;

/// Timeout for connecting; a reachable server accepts at once.
const CONNECT: Duration = Duration::from_secs(10);

/// Maximum wait between two requests: enough for a server that is restarted.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Minimum time between two messages to the user about failures.
const QUIET: Duration = Duration::from_secs(30);

/// A model server.
pub(super) struct ModelServer {
    /// The settings of the job.
    pub(super) settings: Arc<AgentSettings>,
    /// Cameras whose pictures the model sees.
    pub(super) cameras: Vec<String>,
    agent: Agent,
    /// One permit for each request under way; closed once answers are no longer needed.
    permits: Semaphore,
    schema: Value,
    /// Whether the server has refused `response_format` and answered without it.
    is_plain: AtomicBool,
    complaints: Mutex<Complaints>,
    lifeline: Lifeline,
}

/// What the user was told of failed requests.
#[derive(Debug, Default)]
struct Complaints {
    /// Time of the last message.
    said: Option<Instant>,
    /// Whether the last message said that the server fails.
    is_away: bool,
}

/// A failed request.
#[derive(Debug, Default)]
struct Failure {
    /// The reason as a clause: "answered with status 500: …".
    reason: String,
    /// The status of the answer, if there was one.
    status: Option<u16>,
    /// Whether another request may succeed.
    may_pass: bool,
    /// The value of `Retry-After`, if it was in seconds.
    retry_after: Option<Duration>,
}

impl ModelServer {
    /// Creates a client that has not sent any request. The user is told of failed ones through
    /// `lifeline`.
    pub(super) fn new(settings: AgentSettings, cameras: Vec<String>, lifeline: Lifeline) -> Self {
        let (requests, timeout) = (settings.job.max_concurrent_requests, timeout(&settings));
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT.min(timeout)))
            .timeout_global(Some(timeout))
            .max_idle_connections_per_host(requests.min(64))
            .max_redirects(0)
            .user_agent(concat!("rrun/", env!("CARGO_PKG_VERSION")));
        // A proxy from the environment variables is for remote hosts only.
        if is_local(&settings.url) {
            config = config.proxy(None);
        }
        if let Some(certificates) = &settings.certificates {
            let roots = RootCerts::Specific(Arc::clone(certificates));
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        Self {
            agent: config.build().into(),
            permits: Semaphore::new(requests),
            schema: chat::schema(!settings.job.language_only),
            settings: Arc::new(settings),
            cameras,
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
    pub(super) fn ask(
        &self,
        messages: &[ChatMessage],
        pictures: &[PngPicture],
    ) -> Result<Completion, String> {
        let (started, mut failed) = (now(), 0);
        let waits = tokio::runtime::Builder::new_current_thread().build();
        let waits = waits.map_err(|err| err.to_string())?;
        loop {
            let permit = waits.block_on(self.permits.acquire());
            let permit = permit.map_err(|_| self.told("is no longer used"))?;
            let asked = self.once(messages, pictures);
            drop(permit);
            let failure = match asked {
                Ok(completion) => {
                    if std::mem::take(&mut lock(&self.complaints).is_away) {
                        self.lifeline.say(self.told("answers again"));
                    }
                    return Ok(Completion {
                        retries: failed.into(),
                        took: started.elapsed(),
                        ..completion
                    });
                }
                Err(failure) => failure,
            };
            failed += 1;
            // Some servers repeat the key.
            let reason = match &self.settings.key {
                Some(Token(key)) => failure.reason.replace(key, "***"),
                None => failure.reason.clone(),
            };
            tracing::warn!(url = self.settings.url, reason, "model server");
            let Some(wait) = wait(&failure, failed, &self.settings) else {
                let seconds = started.elapsed().as_secs_f64();
                return Err(self.told(&match failed {
                    1 => reason,
                    _ => format!("{reason}, {failed} requests in {seconds:.0} s"),
                }));
            };
            if lock(&self.complaints).is_due(now()) {
                self.lifeline.say(self.told(&format!("{reason}; retrying")));
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread of its own waits before it asks again"
            )]
            std::thread::sleep(wait);
        }
    }

    fn told(&self, text: &str) -> String {
        format!("the model server at {} {text}", self.settings.url)
    }

    /// Sends one request, and a second one without a schema if the server does not support schemas.
    fn once(
        &self,
        messages: &[ChatMessage],
        pictures: &[PngPicture],
    ) -> Result<Completion, Failure> {
        let body = |schema| chat::body(&self.settings, messages, pictures, schema);
        if self.is_plain.load(Ordering::Relaxed) {
            return self.post(&body(None));
        }
        let refused = match self.post(&body(Some(&self.schema))) {
            Err(failure) if matches!(failure.status, Some(400 | 404 | 415 | 422 | 501)) => failure,
            other => return other,
        };
        // If the schema was not the cause, the server refuses this request too and gives the
        // reason.
        let completion = self.post(&body(None))?;
        if !self.is_plain.swap(true, Ordering::Relaxed) {
            self.lifeline.say(self.told(&format!(
                "does not accept `response_format` (it {}): the prompt describes the format instead",
                refused.reason
            )));
        }
        Ok(completion)
    }

    fn post(&self, body: &Value) -> Result<Completion, Failure> {
        let silent = |err| silence(&err, timeout(&self.settings));
        let mut request = self.agent.post(&self.settings.url);
        request = request.header("Content-Type", "application/json");
        if let Some(Token(key)) = &self.settings.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let mut response = request.send(body.to_string()).map_err(silent)?;
        let bytes = response.body_mut().with_config().limit(LARGEST_ANSWER);
        let bytes = bytes.read_to_vec().map_err(silent)?;
        let status = response.status().as_u16();
        if status == 200 {
            // A truncated answer may be complete the next time.
            return Completion::read(&bytes).map_err(passing);
        }
        let why = chat::reason(&bytes);
        let colon = if why.is_empty() { "" } else { ": " };
        Err(Failure {
            reason: format!("answered with status {status}{colon}{why}"),
            status: Some(status),
            may_pass: matches!(status, 408 | 409 | 429 | 500..=599),
            retry_after: retry_after(&response),
        })
    }
}

impl Complaints {
    /// Returns whether the user is told of a failure now.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_quiet = |said| now.saturating_duration_since(said) < QUIET;
        let is_due = !self.said.is_some_and(is_quiet);
        if is_due {
            (self.said, self.is_away) = (Some(now), true);
        }
        is_due
    }
}

/// Timeout of one request, from connecting to the last byte.
fn timeout(settings: &AgentSettings) -> Duration {
    Duration::from_secs_f64(settings.job.request_timeout_s)
}

/// Returns how long to wait after so many failures, of which this is the last; `None` to give up.
fn wait(failure: &Failure, failed: u32, settings: &AgentSettings) -> Option<Duration> {
    if !failure.may_pass || failed > settings.job.max_retries {
        return None;
    }
    let first = Duration::from_secs_f64(settings.job.retry_wait_s);
    let own = first.saturating_mul(2u32.saturating_pow(failed - 1));
    // A server that asks for an hour is asked again sooner, until the retries are used up.
    Some(failure.retry_after.unwrap_or(own).min(LONGEST_WAIT))
}

fn retry_after<T>(response: &Response<T>) -> Option<Duration> {
    let seconds = response.headers().get("retry-after")?.to_str().ok()?;
    Duration::try_from_secs_f64(seconds.trim().parse().ok()?).ok()
}

fn silence(err: &ureq::Error, timeout: Duration) -> Failure {
    use ureq::{Error, Timeout};
    let reason = match err {
        Error::Timeout(Timeout::Connect | Timeout::Resolve) => {
            "accepts no connection in time".to_owned()
        }
        Error::Timeout(_) => format!("did not answer within {} s", timeout.as_secs_f64()),
        Error::BadUri(_) | Error::Http(_) | Error::BodyExceedsLimit(_) => {
            let reason = format!("cannot be asked: {err}");
            return Failure {
                reason,
                ..Failure::default()
            };
        }
        err => format!("cannot be reached: {err}"),
    };
    passing(reason)
}

/// Returns the failure of a request without an answer, which the next one may have.
fn passing(reason: String) -> Failure {
    Failure {
        reason,
        may_pass: true,
        ..Failure::default()
    }
}

/// Returns whether a URL refers to this machine.
fn is_local(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let mut names = ["localhost", "127.", "[::1]"].iter();
    names.any(|name| host.starts_with(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::agent::tests::settings;

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

    /// Returns the waits after failures of one kind, in seconds.
    fn waits(failure: &Failure, max_retries: u32) -> Vec<u64> {
        let settings = settings(json!({"max_retries": max_retries, "retry_wait_s": 1}));
        let waits = (1..).map_while(|failed| wait(failure, failed, &settings));
        waits.map(|wait| wait.as_secs()).collect()
    }

    #[test]
    fn what_may_pass_is_tried_again_with_longer_and_longer_waits() {
        let away = passing(String::new());
        assert_eq!(waits(&away, 3), [1, 2, 4]);
        assert_eq!(waits(&away, 100)[99], LONGEST_WAIT.as_secs());
        assert!(waits(&Failure::default(), 3).is_empty());
    }

    #[test]
    fn a_server_that_says_when_is_asked_then() {
        let after = |seconds| Failure {
            retry_after: Some(Duration::from_secs(seconds)),
            ..passing(String::new())
        };
        assert_eq!(waits(&after(7), 3), [7, 7, 7]);
        assert_eq!(waits(&after(3600), 3), [60, 60, 60]);
    }

    #[test]
    fn a_server_that_fails_now_and_then_is_spoken_of_now_and_then() {
        let (mut complaints, start) = (Complaints::default(), now());
        let said = (0..60).filter(|second| {
            let is_due = complaints.is_due(start + Duration::from_secs(*second));
            assert_eq!(std::mem::take(&mut complaints.is_away), is_due);
            is_due
        });
        assert_eq!(said.collect::<Vec<_>>(), [0, 30]);
    }
}
