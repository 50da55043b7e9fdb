//! Sends one request after the other to one server, over a connection that is opened on demand and
//! reopened after a failure.

use bytes::Bytes;

use crate::clock::now;
use crate::policy::PolicyError;
use crate::policy::remote::{Lifeline, PolicyServer, RetryDecision, RetryPatience};

/// The reason why an attempt has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The server is unreachable; the next attempt may succeed.
    Away(String),
    /// The request or the server is wrong; every attempt would fail like this.
    Wrong(String),
    /// The lifeline was cut.
    Cut,
}

/// A connection to a server, with one answer for each request.
pub trait ServerConnection: Sized {
    /// Connects to the server.
    ///
    /// # Errors
    /// Returns any kind of [`CallError`].
    fn open(server: &PolicyServer, lifeline: &Lifeline) -> Result<Self, CallError>;

    /// Sends a request.
    ///
    /// # Errors
    /// Returns a [`CallError`], after which the connection cannot be used.
    fn send(&mut self, request: &Bytes) -> Result<(), CallError>;

    /// Receives the answer to the request.
    ///
    /// # Errors
    /// Returns a [`CallError`], after which the connection cannot be used.
    fn receive(&mut self) -> Result<Bytes, CallError>;

    /// Makes every step from now on a short one, for last requests. Connections without such
    /// requests do nothing.
    fn hurry(&mut self) {}
}

/// Sends requests to a server, and retries while it is unreachable.
#[derive(Debug)]
pub struct Caller<C> {
    server: PolicyServer,
    lifeline: Lifeline,
    connection: Option<C>,
    patience: RetryPatience,
    /// The result of sending the request in [`Caller::begin`].
    begun: Option<Result<(), CallError>>,
}

impl<C: ServerConnection> Caller<C> {
    /// Creates a caller that connects at the first request.
    pub fn new(server: &PolicyServer, lifeline: &Lifeline) -> Self {
        Self {
            server: server.clone(),
            lifeline: lifeline.clone(),
            connection: None,
            patience: RetryPatience::new(server.retry),
            begun: None,
        }
    }

    /// Opens the connection if there is none.
    ///
    /// # Errors
    /// Returns an error if the server stays unreachable, and an error of the rows if it is not a
    /// policy server.
    pub fn meet(&mut self) -> Result<(), PolicyError> {
        self.retry("connecting", |caller| caller.connected().map(drop))
    }

    /// Sends a request and waits for its answer; `what` names the request in errors.
    ///
    /// # Errors
    /// Returns an error if the server stays unreachable, and an error of the rows if it rejects the
    /// request.
    pub fn call(&mut self, what: &str, request: &Bytes) -> Result<Bytes, PolicyError> {
        self.begin(request);
        self.finish(what, request)
    }

    /// Sends a request without waiting for its answer, so that the servers of several callers work
    /// at the same time. [`Caller::finish`] reports errors.
    pub fn begin(&mut self, request: &Bytes) {
        let sent = self
            .connected()
            .and_then(|connection| connection.send(request));
        self.begun = Some(sent);
    }

    /// Waits for the answer to a request that [`Caller::begin`] sent; sends it again if necessary.
    ///
    /// # Errors
    /// Fails like [`Caller::call`].
    pub fn finish(&mut self, what: &str, request: &Bytes) -> Result<Bytes, PolicyError> {
        self.retry(what, |caller| {
            if caller.begun.is_none() {
                caller.begin(request);
            }
            caller.begun.take().unwrap_or(Ok(()))?;
            caller.connected()?.receive()
        })
    }

    /// Sends a last request over the connection that is there, without a retry and in a short time,
    /// even if the lifeline is cut. Returns whether the server has answered.
    pub fn farewell(&mut self, request: &Bytes) -> bool {
        let Some(mut connection) = self.connection.take() else {
            return false;
        };
        connection.hurry();
        let answer = connection.send(request).and_then(|()| connection.receive());
        if answer.is_ok() {
            self.connection = Some(connection);
        }
        answer.is_ok()
    }

    fn connected(&mut self) -> Result<&mut C, CallError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => C::open(&self.server, &self.lifeline)?,
        };
        Ok(self.connection.insert(connection))
    }

    fn retry<T>(
        &mut self,
        what: &str,
        mut attempt: impl FnMut(&mut Self) -> Result<T, CallError>,
    ) -> Result<T, PolicyError> {
        loop {
            let began = now();
            let trouble = match attempt(self) {
                Ok(value) => {
                    let back = self.patience.succeeded(now());
                    back.into_iter().for_each(|text| self.say(&text));
                    return Ok(value);
                }
                Err(trouble) => trouble,
            };
            self.connection = None;
            let reason = match trouble {
                CallError::Away(reason) => format!("{what}: {reason}"),
                CallError::Wrong(reason) => {
                    return Err(self.server.refusal(format!("{what}: {reason}")));
                }
                CallError::Cut => {
                    return Err(self
                        .server
                        .error(format!("{what}: given up, because the evaluation ends")));
                }
            };
            match self.patience.failed(&reason, began, now()) {
                RetryDecision::GiveUp(text) => {
                    return Err(self.server.error(format!("it stays unavailable: {text}")));
                }
                RetryDecision::Again { after, say } => {
                    say.into_iter().for_each(|text| self.say(&text));
                    self.lifeline.rest(after);
                }
            }
        }
    }

    fn say(&self, text: &str) {
        self.lifeline
            .say(format!("policy server {}: {text}", self.server));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::policy::gr00t::remote::RemoteSettings;
    use crate::policy::remote::{Req, Resolver};

    thread_local! {
        /// The results of this test's attempts, with the first one last.
        static FATES: RefCell<Vec<Result<&'static str, CallError>>> = const { RefCell::new(Vec::new()) };
        static OPENED: RefCell<u32> = const { RefCell::new(0) };
    }

    struct Fake;

    impl ServerConnection for Fake {
        fn open(_: &PolicyServer, lifeline: &Lifeline) -> Result<Self, CallError> {
            OPENED.with_borrow_mut(|opened| *opened += 1);
            if lifeline.is_cut() {
                Err(CallError::Cut)
            } else {
                Ok(Self)
            }
        }

        fn send(&mut self, _: &Bytes) -> Result<(), CallError> {
            Ok(())
        }

        fn receive(&mut self) -> Result<Bytes, CallError> {
            FATES
                .with_borrow_mut(Vec::pop)
                .unwrap_or(Ok("late"))
                .map(Bytes::from)
        }
    }

    fn server(retry: Duration) -> PolicyServer {
        let config = json!({"remote_host": "gpu7", "remote_port": 5555, "remote_timeout_s": 1});
        let settings = RemoteSettings::read(config.as_object().unwrap()).unwrap();
        PolicyServer {
            retry,
            ..settings.server
        }
    }

    fn call(
        mut fates: Vec<Result<&'static str, CallError>>,
        retry: Duration,
    ) -> Result<Bytes, String> {
        fates.reverse();
        FATES.set(fates);
        let mut caller: Caller<Fake> = Caller::new(&server(retry), &Lifeline::alone());
        caller
            .call("get_action", &Bytes::new())
            .map_err(|err| err.to_string())
    }

    fn away() -> Result<&'static str, CallError> {
        Err(CallError::Away("connection refused".to_owned()))
    }

    #[test]
    fn a_server_that_comes_back_is_asked_again_over_a_new_connection() {
        let answer = call(vec![away(), away(), Ok("here")], Duration::from_secs(60));
        assert_eq!(answer, Ok(Bytes::from_static(b"here")));
        assert_eq!(OPENED.take(), 3);
    }

    #[test]
    fn one_that_stays_away_is_named_with_what_was_tried() {
        let text = call(vec![away(); 9], Duration::ZERO).unwrap_err();
        assert_eq!(
            text,
            "policy server tcp://gpu7:5555: it stays unavailable: 1 attempt in 0.0 s, the last \
             one: get_action: connection refused"
        );
    }

    #[test]
    fn what_a_server_says_is_wrong_is_not_asked_again() {
        let wrong = Err(CallError::Wrong("error `no such key`".to_owned()));
        let text = call(vec![wrong, Ok("never")], Duration::from_secs(60)).unwrap_err();
        assert_eq!(
            text,
            "policy server tcp://gpu7:5555: get_action: error `no such key`"
        );
    }

    #[test]
    fn a_cut_line_ends_the_attempts() {
        let lifeline = Lifeline::alone();
        lifeline.cut();
        let mut caller: Caller<Fake> = Caller::new(&server(Duration::from_secs(3600)), &lifeline);
        let reason = caller.meet().unwrap_err().to_string();
        assert!(
            reason.ends_with("given up, because the evaluation ends"),
            "{reason}"
        );
    }

    #[test]
    fn a_name_lookup_that_hangs_obeys_timeout_and_retry() {
        let hanging = |_: &str, _: u16| loop {
            std::thread::park();
        };
        let server = PolicyServer {
            timeout: Duration::from_millis(200),
            resolver: Resolver::new(hanging),
            ..server(Duration::from_millis(300))
        };
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut caller: Caller<Req> = Caller::new(&server, &Lifeline::alone());
            tell.send(caller.meet().unwrap_err().to_string())
        });
        let text = told.recv_timeout(Duration::from_secs(60));
        let text = text.expect("it gives up by itself");
        let end = "the last one: connecting: no address of gpu7 within 0.2 s";
        assert!(text.ends_with(end), "{text}");
    }
}
