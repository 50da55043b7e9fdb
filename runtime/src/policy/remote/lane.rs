//! One connection to a server, opened on demand and again after a failure: the only place that asks
//! again.

use crate::clock::now;
use crate::policy::remote::link::Link;
use crate::policy::remote::patience::RetryPatience;
use crate::policy::remote::{Lifeline, PolicyServer};
use crate::policy::{Chunk, PolicyError, PolicyRow, RowAnswer, RowError};
use crate::protocols::{CallError, ClientCodec};

/// A connection, and what is said over it.
pub(super) struct Lane<C> {
    pub(super) codec: C,
    server: PolicyServer,
    lifeline: Lifeline,
    link: Option<Link>,
    patience: RetryPatience,
}

/// What is done over a connection.
#[derive(Clone, Copy)]
enum Step<'a> {
    Meet,
    Begin(&'a [&'a PolicyRow]),
    Infer(&'a [&'a PolicyRow]),
}

/// What a step has led to: chunks, or why the server rejects it or has forgotten what came before.
type Done = Result<Vec<Chunk>, RowError>;

impl<C: ClientCodec> Lane<C> {
    /// Creates a lane that connects when it is needed.
    pub(super) fn new(codec: C, server: &PolicyServer, lifeline: &Lifeline) -> Self {
        Self {
            codec,
            server: server.clone(),
            lifeline: lifeline.clone(),
            link: None,
            patience: RetryPatience::new(server.retry),
        }
    }

    /// Opens the connection.
    ///
    /// # Errors
    /// Returns an error if the server stays unreachable, or is not one of this protocol.
    pub(super) async fn meet(&mut self) -> Result<(), PolicyError> {
        self.step(Step::Meet).await??;
        Ok(())
    }

    /// Asks for the chunks of rows.
    ///
    /// # Errors
    /// Returns an error if the server stays unreachable.
    pub(super) async fn ask(&mut self, rows: &[&PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        self.step(Step::Begin(rows)).await??;
        if C::TOGETHER
            && rows.len() > 1
            && let Ok(chunks) = self.step(Step::Infer(rows)).await?
        {
            return Ok(chunks.into_iter().map(RowAnswer::Chunk).collect());
        }
        // If they failed together, it may be the fault of one of them.
        let mut answers = Vec::with_capacity(rows.len());
        for row in rows.chunks(1) {
            let done = self.step(Step::Infer(row)).await?;
            let chunk = done.and_then(|mut chunks| chunks.pop().ok_or_else(RowError::not_inferred));
            answers.push(chunk.into());
        }
        Ok(answers)
    }

    /// Drops the connection, so that an outstanding answer is discarded.
    pub(super) fn forget(&mut self) {
        self.link = None;
    }

    /// Says what is said last, without a retry and in a short time, even if the lifeline is cut.
    pub(super) async fn farewell(&mut self) {
        if let Some(mut link) = self.link.take() {
            link.hurry();
            // A server that does not listen need not hear it.
            self.codec.bye(&mut link).await.ok();
            link.close().await;
        }
    }

    /// Does a step, and again for as long as the server is away. An error means that no other step
    /// would fare better.
    async fn step(&mut self, step: Step<'_>) -> Result<Done, PolicyError> {
        loop {
            let began = now();
            let trouble = match self.attempt(step).await {
                Ok(chunks) => {
                    let back = self.patience.succeeded(now());
                    back.into_iter().for_each(|text| self.say(&text));
                    return Ok(Ok(chunks));
                }
                Err(trouble) => trouble,
            };
            let what = C::STEPS[match step {
                Step::Meet => 0,
                Step::Begin(_) => 1,
                Step::Infer(_) => 2,
            }];
            let reason = match trouble {
                CallError::Row(reason) => return Ok(Err(reason)),
                CallError::Policy(err) => return Err(err),
                CallError::Wrong(reason) => {
                    // Over it, the server would go on with what it got wrong.
                    if let Some(link) = self.link.take() {
                        link.close().await;
                    }
                    return Ok(Err(self.server.refusal(format!("{what}: {reason}"))));
                }
                CallError::Cut => {
                    self.link = None;
                    let reason = format!("{what}: given up, because the evaluation ends");
                    return Err(self.server.error(reason));
                }
                CallError::Away(reason) => format!("{what}: {reason}"),
            };
            self.link = None;
            if let Step::Infer(rows) = step
                && rows.iter().any(|row| self.codec.is_lost(row))
            {
                let lost = "the server has lost the session of this episode";
                return Ok(Err(self.server.refusal(format!("{reason}; {lost}"))));
            }
            let pause = self.patience.failed(&reason, began, now());
            let pause = pause.map_err(|text| {
                let reason = format!("it stays unavailable: {text}");
                self.server.error(reason)
            })?;
            pause.say.into_iter().for_each(|text| self.say(&text));
            tokio::select! {
                () = self.lifeline.until_cut() => {}
                () = tokio::time::sleep(pause.time) => {}
            }
        }
    }

    async fn attempt(&mut self, step: Step<'_>) -> Result<Vec<Chunk>, CallError> {
        let link = match &mut self.link {
            Some(link) => link,
            none => {
                let mut link = Link::open(&self.server, &self.lifeline, C::TRANSPORT).await?;
                self.codec.greet(&mut link).await?;
                none.insert(link)
            }
        };
        match step {
            Step::Meet => Ok(Vec::new()),
            Step::Begin(rows) => self.codec.begin(link, rows).await.map(|()| Vec::new()),
            Step::Infer(rows) => self.codec.infer(link, rows).await,
        }
    }

    fn say(&self, text: &str) {
        self.lifeline
            .say(format!("policy server {}: {text}", self.server));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::{SinkExt as _, StreamExt as _};
    use serde_json::json;
    use tokio::net::TcpListener;
    use tokio_tungstenite::accept_async;
    use tokio_tungstenite::tungstenite::Message;

    use super::*;
    use crate::policy::PolicyFacts;
    use crate::policy::tests::{observation, row};
    use crate::protocols::{Exchange, Transport};

    /// A protocol of a few words, over ZeroMQ or websockets: asks for rows together or one by one,
    /// but has no request for odd environments.
    #[derive(Clone)]
    struct Words<const ZMTP: bool, const TOGETHER: bool = false>;

    impl<const ZMTP: bool, const TOGETHER: bool> ClientCodec for Words<ZMTP, TOGETHER> {
        const TOGETHER: bool = TOGETHER;
        const TRANSPORT: Transport = match ZMTP {
            true => Transport::Zmtp,
            false => Transport::Websocket("Api-Key"),
        };
        const STEPS: [&'static str; 3] = ["connecting", "reset", "get_action"];

        async fn infer(
            &mut self,
            link: &mut impl Exchange,
            rows: &[&PolicyRow],
        ) -> Result<Vec<Chunk>, CallError> {
            if rows.iter().any(|row| row.env.0 % 2 == 1) {
                return Err(CallError::Row(RowError("it is odd".to_owned())));
            }
            link.ask(rows.len().to_string().into()).await?;
            Ok(rows.iter().map(|_| Chunk::new(1, vec![0.0])).collect())
        }

        async fn bye(&mut self, link: &mut impl Exchange) -> Result<(), CallError> {
            link.ask("bye".into()).await.map(drop)
        }

        fn facts(&self) -> PolicyFacts {
            PolicyFacts::default()
        }
    }

    #[tokio::test]
    async fn rows_that_fail_together_are_asked_for_one_by_one() {
        let (listener, port) = listener().await;
        let server = server(port, Duration::from_secs(60));
        let mut lane = Lane::new(Words::<false, true>, &server, &Lifeline::alone());
        let served = tokio::spawn(answering(listener, 0, Message::binary("here")));
        let rows = [2, 3, 4].map(|env| row(env, observation()));
        let answers = lane.ask(&rows.each_ref()).await.unwrap();
        let failed = answers.iter().map(|answer| answer.failure().is_some());
        assert_eq!(failed.collect::<Vec<_>>(), [false, true, false]);
        lane.ask(&[&rows[0], &rows[2]]).await.unwrap();
        lane.farewell().await;
        assert_eq!(served.await.unwrap(), ["1", "1", "2", "bye", "close"]);
    }

    fn server(port: u16, retry: Duration) -> PolicyServer {
        let config = json!({"remote_host": "127.0.0.1", "remote_port": port});
        let given = jobs::settings::read("", config.as_object().unwrap()).unwrap();
        let timeout = Duration::from_secs(15);
        PolicyServer {
            retry,
            ..PolicyServer::new(&given, None, ("ws", port, timeout)).unwrap()
        }
    }

    async fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    /// Closes `lost` connections, and answers every message of the next one; returns what it got.
    async fn answering(listener: TcpListener, lost: usize, answer: Message) -> Vec<String> {
        for _ in 0..lost {
            drop(listener.accept().await.unwrap());
        }
        let (tcp, _) = listener.accept().await.unwrap();
        let mut websocket = accept_async(tcp).await.unwrap();
        let mut heard = Vec::new();
        while let Some(Ok(message)) = websocket.next().await {
            match message {
                Message::Binary(_) => {
                    heard.push(message.into_text().unwrap().to_string());
                    websocket.send(answer.clone()).await.unwrap();
                }
                Message::Close(_) => heard.push("close".to_owned()),
                _ => {}
            }
        }
        heard
    }

    async fn ask<C: ClientCodec>(lane: &mut Lane<C>) -> Result<RowAnswer, String> {
        let row = row(0, observation());
        let answers = lane.ask(&[&row]).await;
        answers
            .map(|mut all| all.remove(0))
            .map_err(|err| err.to_string())
    }

    #[tokio::test]
    async fn a_server_that_comes_back_is_asked_again_and_left_on_purpose() {
        let (listener, port) = listener().await;
        let lifeline = Lifeline::alone();
        let server = server(port, Duration::from_secs(60));
        let mut lane = Lane::new(Words::<false>, &server, &lifeline);
        let served = tokio::spawn(answering(listener, 2, Message::binary("here")));
        assert!(matches!(ask(&mut lane).await, Ok(RowAnswer::Chunk(_))));
        // What is said at the end goes out after a cut, too.
        lifeline.cut();
        lane.farewell().await;
        assert_eq!(served.await.unwrap(), ["1", "bye", "close"]);
    }

    #[tokio::test]
    async fn what_a_server_says_is_wrong_is_not_asked_again() {
        let (listener, port) = listener().await;
        let server = server(port, Duration::from_secs(60));
        let mut lane = Lane::new(Words::<false>, &server, &Lifeline::alone());
        let served = tokio::spawn(answering(listener, 0, Message::text("ValueError: no")));
        let reason = format!("policy server {server}: get_action: it says: ValueError: no");
        assert_eq!(
            ask(&mut lane).await,
            Ok(RowAnswer::Failed(RowError(reason)))
        );
        assert_eq!(served.await.unwrap(), ["1", "close"]);
    }

    #[tokio::test]
    async fn one_that_stays_away_or_is_silent_is_named_with_what_was_tried() {
        let (listener, port) = listener().await;
        let server = PolicyServer {
            timeout: Duration::from_millis(300),
            ..server(port, Duration::ZERO)
        };
        let silent = "the last one: reset: no answer within 0.3 s";
        let over_zmtp = ask(&mut Lane::new(Words::<true>, &server, &Lifeline::alone())).await;
        let over_websocket = ask(&mut Lane::new(Words::<false>, &server, &Lifeline::alone())).await;
        drop(listener);
        let nobody = ask(&mut Lane::new(Words::<true>, &server, &Lifeline::alone())).await;
        for (answer, end) in [
            (over_zmtp, silent),
            (over_websocket, silent),
            (nobody, "the last one: reset: connection refused"),
        ] {
            let text = answer.unwrap_err();
            let start = format!("policy server {server}: it stays unavailable: 1 attempt in 0.");
            assert!(text.starts_with(&start) && text.ends_with(end), "{text}");
        }
    }

    #[tokio::test]
    async fn a_cut_line_ends_a_wait() {
        let (_listener, port) = listener().await;
        let server = server(port, Duration::from_secs(3600));
        let lifeline = Lifeline::alone();
        let mut lane = Lane::new(Words::<true>, &server, &lifeline);
        let cut = async {
            tokio::task::yield_now().await;
            lifeline.cut();
        };
        let (met, ()) = tokio::join!(lane.meet(), cut);
        let text = met.unwrap_err().to_string();
        assert!(
            text.ends_with("given up, because the evaluation ends"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_name_lookup_that_hangs_obeys_timeout_and_retry() {
        let server = PolicyServer {
            host: "gpu7".to_owned(),
            timeout: Duration::from_millis(200),
            lookup: |_, _| loop {
                std::thread::park();
            },
            ..server(1, Duration::from_millis(300))
        };
        let mut lane = Lane::new(Words::<true>, &server, &Lifeline::alone());
        let text = lane.meet().await.unwrap_err().to_string();
        let end = "the last one: connecting: no address of gpu7 within 0.2 s";
        assert!(text.ends_with(end), "{text}");
    }
}
