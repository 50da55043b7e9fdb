//! Tests of the limits of one client's requests, and of their effect on others.

use bytes::Bytes;
use rig::wait::until;
use wire::{Dialect, Value, read, write};

use crate::serve::client::{
    Client, SMALL, apart, error, noise_seeds, numbers, rows_of, seeded, with, with_token,
};
use crate::serve::server::Server;

#[test]
fn a_request_that_asks_for_too_much_is_told_the_limit_and_its_client_goes_on() {
    let server = Server::start(&["--max-rows", "2", "--max-picture", "100"]);
    let mut client = Client::connect(server.address);
    let mut refusal = |request: &Value| error(&client.ask_value(request)).to_owned();
    let rows = refusal(&rows_of(3, SMALL, "reach"));
    assert_eq!(
        rows,
        "the request has 3 rows, expected at most 2 (--max-rows)"
    );
    let prompt = refusal(&rows_of(2, SMALL, &"x".repeat(2049)));
    let wanted = "an instruction has 2049 bytes, expected at most 2048";
    assert_eq!(prompt, wanted);
    // Padded to a square, the image would have 3 GB.
    let picture = refusal(&rows_of(1, [1, 32_000], "reach"));
    let wanted = "has 1 x 32000 pixels, expected at most 100 along an edge (--max-picture)";
    assert!(picture.ends_with(wanted), "{picture}");
    numbers(&client.ask_value(&rows_of(2, SMALL, "reach the cube")));
    assert_eq!(
        server.metric("rrun_serve_rejected_total{reason=\"limit\"}"),
        3.0
    );
}

#[test]
fn a_row_is_answered_before_thousands_that_were_asked_for_earlier() {
    let server = Server::start(&["--max-rows", "4096"]);
    let expected = numbers(&Client::connect(server.address).ask_value(&seeded(1)));
    let mut greedy = Client::connect(server.address);
    greedy
        .send(&write(
            &rows_of(3000, SMALL, "reach the cube"),
            Dialect::Kind,
        ))
        .unwrap();
    until("the long request has begun", || {
        server.metric("rrun_serve_rows_total") > 1.0
    });
    let mut client = Client::connect(server.address);
    for _ in 0..3 {
        assert_eq!(numbers(&client.ask_value(&seeded(1))), expected);
    }
    assert!(
        server.metric("rrun_serve_rows_total") < 3000.0,
        "the long request is not done"
    );
}

#[test]
fn rows_that_are_inferred_in_parts_are_those_that_are_inferred_together() {
    let server = Server::start(&[]);
    let mut client = Client::connect(server.address);
    let rows = rows_of(5, SMALL, "reach the cube");
    let rows = with(&rows, "data/options", noise_seeds(&[0, 1, 2, 3, 4]));
    let parts = client.ask_value(&rows);
    assert_eq!(server.metric("rrun_serve_batches_total"), 5.0);
    let whole = Server::start(&["--max-batch", "8"]);
    let together = Client::connect(whole.address).ask_value(&rows);
    assert_eq!(whole.metric("rrun_serve_batches_total"), 1.0);
    let (parts, together) = (numbers(&parts), numbers(&together));
    let apart = apart(&parts, &together);
    assert!(apart < 1e-2, "{apart}");
}

#[test]
fn nothing_more_is_inferred_for_a_client_that_has_gone() {
    let server = Server::start(&["--max-rows", "4096"]);
    let rows = write(&rows_of(3000, SMALL, "reach the cube"), Dialect::Kind);
    for says_more in [false, true] {
        let before = server.metric("rrun_serve_rows_total");
        let mut client = Client::connect(server.address);
        client.send(&rows).unwrap();
        if says_more {
            // The close arrives after bytes that nothing reads before there is an answer.
            client.raw(b"\x01").unwrap();
        }
        until("it has begun", || {
            server.metric("rrun_serve_rows_total") > before
        });
        drop(client);
        until("it is dropped", || {
            server.metric("rrun_serve_queue_length") == 0.0
        });
        assert!(
            server.metric("rrun_serve_rows_total") < before + 3000.0,
            "says_more: {says_more}"
        );
    }
}

#[test]
fn a_message_without_the_token_is_not_decoded() {
    let server = Server::start(&["--api-token", "s3cret"]);
    let mut client = Client::connect(server.address);
    let mut answer =
        |bytes: &[u8]| error(&read(&Bytes::from(client.ask(bytes))).unwrap().value).to_owned();
    assert_eq!(answer(b"\xc1"), "Unauthorized: Invalid API token");
    assert_eq!(
        answer(b"\x82\xa9api_token\xa6s3cre7\xa1x\xc1"),
        "Unauthorized: Invalid API token"
    );
    assert_eq!(
        server.metric("rrun_serve_rejected_total{reason=\"unreadable\"}"),
        0.0
    );
    assert_eq!(
        answer(b"\x82\xa9api_token\xa6s3cret\xa1x\xc1"),
        "not msgpack: byte 20 is 0xc1"
    );
    assert_eq!(
        server.metric("rrun_serve_rejected_total{reason=\"unreadable\"}"),
        1.0
    );
}

#[test]
fn a_connection_may_send_little_before_it_has_shown_the_token() {
    let server = Server::start(&["--api-token", "s3cret"]);
    let ping = |token: &str, more: usize| {
        let more = Value::Bytes(vec![0; more].into());
        let ping = Value::map([("endpoint", "ping".into()), ("more", more)]);
        write(&with_token(&ping, token), Dialect::Kind)
    };
    let mut stranger = Client::connect(server.address);
    // The connection may be closed during the send.
    let _ = stranger.send(&ping("s3cret", 17 << 20));
    assert!(stranger.receive().is_err());
    let mut patient = Client::connect(server.address);
    let half = ping("no", 9 << 20);
    assert!(error(&read(&patient.ask(&half).into()).unwrap().value).starts_with("Unauthorized"));
    let _ = patient.send(&half);
    assert!(patient.receive().is_err(), "all that it sends counts");
    let mut client = Client::connect(server.address);
    client.ask(&ping("s3cret", 0));
    let long = client.ask(&ping("s3cret", 17 << 20));
    let answer = read(&long.into()).unwrap().value;
    assert!(answer.get("status").is_some(), "{answer:?}");
}
