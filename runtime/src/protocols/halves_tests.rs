//! Our clients against our servers, in one process and without sockets.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use jobs::policies::{Gr00tRemote, Pi0, VlaEval};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use wire::Dialect;

use crate::env::{EnvSpec, Observation};
use crate::policy::remote::PolicyServer;
use crate::policy::tests::{env_with, frame, row};
use crate::policy::{Chunk, PolicyRow, RowNoise};
use crate::protocols::gr00t::Gr00tServer;
use crate::protocols::openpi::OpenpiServer;
use crate::protocols::vla_eval::VlaEvalServer;
use crate::protocols::vla_eval::server_tests::card;
use crate::protocols::{CallError, ClientCodec as _, Exchange, OnServer};
use crate::serve::connections::ConnectionId;
use crate::serve::http;
use crate::serve::request::RequestError;
use crate::serve::server::DispatcherMessage;
use crate::serve::session::{ServerCodec, Session};

/// A server's half, with what it has said.
struct Served<C> {
    codec: C,
    client: Session,
    /// Texts are errors, as over a connection.
    said: VecDeque<Result<Bytes, CallError>>,
}

impl<C: ServerCodec> Exchange for Served<C> {
    async fn send(&mut self, message: Bytes) -> Result<(), CallError> {
        let reply = self.codec.answer(&mut self.client, Ok(message)).await;
        self.said.extend(reply.message.map(|message| match message {
            Message::Text(text) => Err(CallError::Wrong(text.to_string())),
            message => Ok(message.into_data()),
        }));
        Ok(())
    }

    async fn receive(&mut self) -> Result<Bytes, CallError> {
        let closed = || CallError::Away("it closed the connection".to_owned());
        self.said.pop_front().ok_or_else(closed)?
    }

    async fn receive_more(&mut self) -> Result<Bytes, CallError> {
        self.receive().await
    }
}

/// Returns the server of a policy that answers what a row shows, and its seed.
fn served<C>(codec: C) -> Served<C> {
    let (dispatcher, mut inbox) = mpsc::unbounded_channel();
    let mut server = http::tests::server(card(&[0]), None, dispatcher);
    Arc::get_mut(&mut server).unwrap().limits.max_rows = 2;
    tokio::spawn(async move {
        while let Some(DispatcherMessage::Request(request)) = inbox.recv().await {
            let answer = match &*request.rows[0].now().language {
                "fail" => Err(RequestError::new("as a test wants it")),
                _ => Ok(request.rows.iter().map(shown).collect()),
            };
            let _ = request.reply.send(answer);
        }
    });
    Served {
        codec,
        client: Session::new(server, ConnectionId(0)),
        said: VecDeque::new(),
    }
}

fn shown(row: &PolicyRow) -> Chunk {
    let seen = row.now();
    let seed = match &row.noise {
        Some(RowNoise::Seed(seed)) => (seed % 1000) as f32,
        _ => 0.0,
    };
    let action = [
        seen.state["arm"][1],
        seen.state["hand"][0],
        seen.video["wrist"].rgb[0].into(),
        seed,
    ];
    Chunk::new(4, [action, action.map(|number| number + 1.0)].concat())
}

fn env() -> EnvSpec {
    let mut env = env_with(&["front", "wrist"], [1, 2]);
    env.state = vec![("arm".to_owned(), 2), ("hand".to_owned(), 1)];
    env.action.names.truncate(4);
    env
}

/// Returns a row of an episode's second inference.
fn row_of(env: usize, words: &str) -> PolicyRow {
    let mut seen = Observation {
        language: words.into(),
        ..Observation::default()
    };
    for (name, colour) in [("front", 1), ("wrist", 2)] {
        seen.video.insert(name.to_owned(), frame([1, 2], colour));
    }
    let number = env as f32;
    seen.state.insert("arm".to_owned(), vec![0.0, number]);
    seen.state.insert("hand".to_owned(), vec![-number]);
    row(env, seen)
}

/// Returns what a row's chunk has to be.
fn wanted(env: usize, seed: f32) -> Chunk {
    let action = [env as f32, -(env as f32), 2.0, seed];
    Chunk::new(4, [action, action.map(|number| number + 1.0)].concat())
}

fn client<S: OnServer>(given: Json) -> S::Codec {
    let given: S = jobs::policies::read(given.as_object().unwrap()).unwrap();
    let server = PolicyServer::new(given.server().0, None, ("ws", S::PORT, S::TIMEOUT));
    given.client(&server.unwrap(), &env()).unwrap()
}

fn refusal<T: std::fmt::Debug>(result: Result<T, CallError>) -> String {
    match result {
        Err(CallError::Wrong(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn gr00ts_halves_understand_each_other_in_both_dialects() {
    for dialect in [Dialect::Kind, Dialect::Npy] {
        let mut link = served(Gr00tServer::new(dialect));
        let mut client = client::<Gr00tRemote>(json!({}));
        client.greet(&mut link).await.unwrap();
        let rows = [3, 5].map(|env| row_of(env, "go"));
        let both: Vec<&PolicyRow> = rows.iter().collect();
        client.begin(&mut link, &both).await.unwrap();
        let chunks = client.infer(&mut link, &both).await.unwrap();
        let wanted = [3, 5].map(|env| wanted(env, (rows[0].noise_seed(10) % 1000) as f32));
        assert_eq!(chunks, wanted);
        let failed = client.infer(&mut link, &[&row_of(3, "fail")]).await;
        let reason = "it answers with the error `as a test wants it`";
        assert_eq!(refusal(failed), reason);
        let three = [0, 1, 2].map(|env| row_of(env, "go"));
        let refused = client.infer(&mut link, &three.each_ref()).await;
        assert!(refusal(refused).contains("the request has 3 rows, expected at most 2"));
    }
}

#[tokio::test]
async fn openpis_halves_understand_each_other() {
    let mut link = served(OpenpiServer::default());
    let names = ["front", "wrist", "arm", "hand"];
    let mapping = names.map(|name| (format!("observation/{name}"), Json::from(name)));
    let mut client = client::<Pi0>(json!({
        "openpi_embodiment_adapter": "custom", "action_chunk_length": 2,
        "target_image_size": [1, 2], "observation_mapping": Json::from_iter(mapping),
    }));
    let rows = [3, 5].map(|env| row_of(env, "go"));
    let chunks = client.infer(&mut link, &rows.each_ref()).await.unwrap();
    assert_eq!(chunks, [3, 5].map(|env| wanted(env, 0.0)));
    let failed = client.infer(&mut link, &[&row_of(3, "fail")]).await;
    assert_eq!(refusal(failed), "as a test wants it");
}

#[tokio::test]
async fn vla_evals_halves_understand_each_other() {
    let card = card(&[0]);
    let mut link = served(VlaEvalServer::new(&card, false));
    let mut client = client::<VlaEval>(json!({}));
    client.greet(&mut link).await.unwrap();
    let facts = client.facts();
    assert_eq!(facts.notes, [""; 0]);
    let first = row_of(3, "go");
    let failed = client.infer(&mut link, &[&row_of(3, "fail")]).await;
    let reason = "it answers with an error: as a test wants it";
    assert_eq!(refusal(failed), reason);
    let later = PolicyRow {
        inference: 1,
        ..first.clone()
    };
    let whole = wanted(3, 0.0);
    for (row, step) in [(&first, 0), (&later, 1)] {
        let chunks = client.infer(&mut link, &[row]).await.unwrap();
        assert_eq!(chunks[0].values(), whole.action(step).unwrap());
    }
    let next = PolicyRow {
        episode: 1,
        ..first
    };
    let chunks = client.infer(&mut link, &[&next]).await.unwrap();
    assert_eq!(chunks[0].values(), whole.action(0).unwrap());
}
