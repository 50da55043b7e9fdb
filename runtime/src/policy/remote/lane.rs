//! One connection to a server, opened on demand and again after a failure: the only place that asks
//! again.

use crate::clock::now;
use crate::policy::remote::link::Link;
use crate::policy::remote::{
    CallError, ClientCodec, Lifeline, PolicyServer, RetryDecision, RetryPatience,
};
use crate::policy::{Chunk, PolicyError, PolicyRow, RowAnswer, RowError};

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

/// Why a step has not been done, and is not tried again.
enum Failure {
    /// The server rejects it, or has forgotten what came before.
    Refused(RowError),
    /// No other step would fare better.
    Job(PolicyError),
}

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
        self.done(Step::Meet).await
    }

    /// Asks for the chunks of rows.
    ///
    /// # Errors
    /// Returns an error if the server stays unreachable.
    pub(super) async fn ask(&mut self, rows: &[&PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        self.done(Step::Begin(rows)).await?;
        let mut answers = Vec::with_capacity(rows.len());
        let together = if C::TOGETHER { rows.len().max(1) } else { 1 };
        for rows in rows.chunks(together) {
            match self.step(Step::Infer(rows)).await {
                Ok(chunks) => answers.extend(chunks.into_iter().map(RowAnswer::Chunk)),
                Err(Failure::Job(err)) => return Err(err),
                // It may be the fault of one of them.
                Err(Failure::Refused(_)) if rows.len() > 1 => {
                    for row in rows.chunks(1) {
                        answers.push(self.alone(row).await?);
                    }
                }
                Err(Failure::Refused(reason)) => answers.push(RowAnswer::Failed(reason)),
            }
        }
        Ok(answers)
    }

    async fn alone(&mut self, row: &[&PolicyRow]) -> Result<RowAnswer, PolicyError> {
        match self.step(Step::Infer(row)).await {
            Ok(mut chunks) => Ok(match chunks.pop() {
                Some(chunk) => RowAnswer::Chunk(chunk),
                None => RowAnswer::Failed(RowError::not_inferred()),
            }),
            Err(Failure::Refused(reason)) => Ok(RowAnswer::Failed(reason)),
            Err(Failure::Job(err)) => Err(err),
        }
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

    /// Does a step that concerns no row.
    async fn done(&mut self, step: Step<'_>) -> Result<(), PolicyError> {
        match self.step(step).await {
            Ok(_) => Ok(()),
            Err(Failure::Refused(reason)) => Err(reason.into()),
            Err(Failure::Job(err)) => Err(err),
        }
    }

    /// Does a step, and again for as long as the server is away.
    async fn step(&mut self, step: Step<'_>) -> Result<Vec<Chunk>, Failure> {
        loop {
            let began = now();
            let trouble = match self.attempt(step).await {
                Ok(chunks) => {
                    let back = self.patience.succeeded(now());
                    back.into_iter().for_each(|text| self.say(&text));
                    return Ok(chunks);
                }
                Err(trouble) => trouble,
            };
            let what = C::STEPS[match step {
                Step::Meet => 0,
                Step::Begin(_) => 1,
                Step::Infer(_) => 2,
            }];
            let reason = match trouble {
                CallError::Row(reason) => return Err(Failure::Refused(reason)),
                CallError::Policy(err) => return Err(Failure::Job(err)),
                CallError::Wrong(reason) => {
                    self.hang_up().await;
                    return Err(self.refused(format!("{what}: {reason}")));
                }
                CallError::Cut => {
                    self.link = None;
                    let reason = format!("{what}: given up, because the evaluation ends");
                    return Err(Failure::Job(self.server.error(reason)));
                }
                CallError::Away(reason) => format!("{what}: {reason}"),
            };
            self.link = None;
            if let Step::Infer(rows) = step
                && rows.iter().any(|row| self.codec.is_lost(row))
            {
                let lost = "the server has lost the session of this episode";
                return Err(self.refused(format!("{reason}; {lost}")));
            }
            match self.patience.failed(&reason, began, now()) {
                RetryDecision::GiveUp(text) => {
                    let reason = format!("it stays unavailable: {text}");
                    return Err(Failure::Job(self.server.error(reason)));
                }
                RetryDecision::Again { after, say } => {
                    say.into_iter().for_each(|text| self.say(&text));
                    tokio::select! {
                        () = self.lifeline.until_cut() => {}
                        () = tokio::time::sleep(after) => {}
                    }
                }
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

    /// Closes the connection, over which the server would go on with what it got wrong.
    async fn hang_up(&mut self) {
        if let Some(link) = self.link.take() {
            link.close().await;
        }
    }

    fn refused(&self, reason: String) -> Failure {
        Failure::Refused(self.server.refusal(reason))
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
    use crate::env::EnvIndex;
    use crate::policy::PolicyFacts;
    use crate::policy::gr00t::remote::RemoteSettings;
    use crate::policy::remote::{Exchange, Resolver, Transport};
    use crate::policy::tests::{observation, row};

    /// A protocol of a few words, over ZeroMQ or websockets.
    struct Words<const ZMTP: bool>;

    impl<const ZMTP: bool> ClientCodec for Words<ZMTP> {
        const TRANSPORT: Transport = match ZMTP {
            true => Transport::Zmtp,
            false => Transport::Websocket("Api-Key"),
        };
        const STEPS: [&'static str; 3] = ["connecting", "reset", "get_action"];

        fn lane(&self, _: EnvIndex) -> usize {
            0
        }

        fn another(&self) -> Self {
            Self
        }

        async fn infer(
            &mut self,
            link: &mut impl Exchange,
            rows: &[&PolicyRow],
        ) -> Result<Vec<Chunk>, CallError> {
            link.ask("act".into()).await?;
            Ok(rows.iter().map(|_| Chunk::new(1, vec![0.0])).collect())
        }

        async fn bye(&mut self, link: &mut impl Exchange) -> Result<(), CallError> {
            link.ask("bye".into()).await.map(drop)
        }

        fn facts(&self) -> PolicyFacts {
            PolicyFacts::default()
        }
    }

    /// Asks for all rows together, but has no request for odd environments.
    struct Together;

    impl ClientCodec for Together {
        const TRANSPORT: Transport = Transport::Websocket("Api-Key");
        const STEPS: [&'static str; 3] = ["connecting", "reset", "get_action"];
        const TOGETHER: bool = true;

        fn lane(&self, _: EnvIndex) -> usize {
            0
        }

        fn another(&self) -> Self {
            Self
        }

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

        fn facts(&self) -> PolicyFacts {
            PolicyFacts::default()
        }
    }

    #[tokio::test]
    async fn rows_that_fail_together_are_asked_for_one_by_one() {
        let (listener, port) = listener().await;
        let server = server(port, Duration::from_secs(60));
        let mut lane = Lane::new(Together, &server, &Lifeline::alone());
        let served = tokio::spawn(answering(listener, 0, Message::binary("here")));
        let rows = [2, 3, 4].map(|env| row(env, observation()));
        let answers = lane.ask(&rows.each_ref()).await.unwrap();
        let failed = answers.iter().map(|answer| answer.failure().is_some());
        assert_eq!(failed.collect::<Vec<_>>(), [false, true, false]);
        lane.ask(&[&rows[0], &rows[2]]).await.unwrap();
        lane.farewell().await;
        assert_eq!(served.await.unwrap(), ["1", "1", "2", "close"]);
    }

    fn server(port: u16, retry: Duration) -> PolicyServer {
        let config = json!({"remote_host": "127.0.0.1", "remote_port": port});
        let settings = RemoteSettings::read(config.as_object().unwrap()).unwrap();
        PolicyServer {
            scheme: "ws",
            retry,
            ..settings.server
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
        assert_eq!(served.await.unwrap(), ["act", "bye", "close"]);
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
        assert_eq!(served.await.unwrap(), ["act", "close"]);
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
        let hanging = |_: &str, _: u16| loop {
            std::thread::park();
        };
        let server = PolicyServer {
            host: "gpu7".to_owned(),
            timeout: Duration::from_millis(200),
            resolver: Resolver::new(hanging),
            ..server(1, Duration::from_millis(300))
        };
        let mut lane = Lane::new(Words::<true>, &server, &Lifeline::alone());
        let text = lane.meet().await.unwrap_err().to_string();
        let end = "the last one: connecting: no address of gpu7 within 0.2 s";
        assert!(text.ends_with(end), "{text}");
    }
}
