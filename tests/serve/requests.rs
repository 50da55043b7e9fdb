//! Tests of requests that are not in the recordings.

use std::sync::Barrier;

use wire::{Array, Value};

use crate::serve::client::{
    Client, INSTRUCTION, SMALL, apart, arrays, at, error, get_action, noise_seeds, numbers,
    rows_of, seeded, set, with,
};
use crate::serve::server::Server;

#[test]
fn requests_that_come_together_are_inferred_together_with_the_actions_of_those_that_come_alone() {
    let alone: Vec<_> = (0..4)
        .map(|seed| numbers(&Client::connect(Server::shared().address).ask_value(&seeded(seed))))
        .collect();
    assert_ne!(alone[0], alone[1]);
    let server = Server::start(&["--max-batch", "8", "--max-wait", "1000"]);
    let (barrier, address) = (&Barrier::new(4), server.address);
    std::thread::scope(|scope| {
        for (seed, alone) in (0..).zip(&alone) {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for _ in 0..5 {
                    barrier.wait();
                    let found = numbers(&client.ask_value(&seeded(seed)));
                    assert!(apart(&found, alone) < 1e-3, "client {seed}");
                }
            });
        }
    });
    let (rows, batches) = (
        server.metric("rrun_serve_rows_total"),
        server.metric("rrun_serve_batches_total"),
    );
    assert_eq!(rows, 20.0);
    assert!(batches <= 10.0, "{batches} batches of {rows} rows");
    assert_eq!(server.metric("rrun_serve_queue_length"), 0.0);
    assert!(server.metric("rrun_serve_request_seconds{quantile=\"0.99\"}") > 0.0);
}

#[test]
fn a_wrong_request_spoils_no_others() {
    let server = Server::start(&["--max-batch", "8", "--max-wait", "1000"]);
    let alone = numbers(&Client::connect(server.address).ask_value(&seeded(1)));
    // It passes validation, as it does in the reference.
    let narrow = with(
        &seeded(2),
        "data/observation/state/eef_9d",
        Array::of_f32(&[1, 1, 4], &[0.0; 4]).into(),
    );
    let (barrier, address) = (&Barrier::new(2), server.address);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut client = Client::connect(address);
            for _ in 0..5 {
                barrier.wait();
                let found = numbers(&client.ask_value(&seeded(1)));
                let apart = apart(&found, &alone);
                assert!(apart < 1e-3, "{apart}");
            }
        });
        scope.spawn(move || {
            let mut client = Client::connect(address);
            for _ in 0..5 {
                barrier.wait();
                let answer = client.ask_value(&narrow);
                assert_eq!(
                    error(&answer),
                    "state `eef_9d` is 4 values wide, expected 9"
                );
            }
        });
    });
}

#[test]
fn several_rows_of_a_request_are_those_of_several_requests() {
    let mut client = Client::connect(Server::shared().address);
    let mut ask = |seeds: &[u64]| {
        let rows = rows_of(seeds.len(), SMALL, "reach the cube");
        let answer = client.ask_value(&with(&rows, "data/options", noise_seeds(seeds)));
        arrays_of(&answer)
    };
    let (both, first) = (ask(&[5, 6]), ask(&[5]));
    for ((name, both), (_, first)) in both.iter().zip(&first) {
        assert_eq!(both.len(), 2 * first.len(), "{name}");
        assert_eq!(both[..first.len()], *first, "{name}");
        assert_ne!(both[first.len()..], *first, "{name}");
    }
}

/// Returns the keys and numbers of an answer `[actions, info]`.
fn arrays_of(answer: &Value) -> Vec<(String, Vec<f32>)> {
    let whole = Value::map([("actions", answer.as_list().unwrap()[0].clone())]);
    let arrays = arrays(&whole, "actions").into_iter();
    arrays.map(|(name, array)| (name, array.to_f32())).collect()
}

#[test]
fn an_episode_repeats_when_its_seed_does() {
    let mut client = Client::connect(Server::shared().address);
    let mut episode = |seed: Option<u64>| {
        let options = seed.map_or(Value::Nil, |seed| Value::map([("seed", seed.into())]));
        let reset = Value::map([
            ("endpoint", "reset".into()),
            ("data", Value::map([("options", options)])),
        ]);
        assert_eq!(client.ask_value(&reset), Value::map([]));
        [
            numbers(&client.ask_value(&get_action(Value::Nil))),
            numbers(&client.ask_value(&get_action(Value::Nil))),
        ]
    };
    let first = episode(Some(7));
    assert_ne!(first[0], first[1], "every inference has its own noise");
    assert_eq!(first, episode(Some(7)));
    assert_ne!(first, episode(Some(8)));
    assert_ne!(episode(None), episode(None));
}

#[test]
fn an_observation_of_the_simulation_wrapper_is_answered_in_its_form() {
    let nested = get_action(noise_seeds(&[5]));
    let observation = at(&nested, "data/observation");
    let mut flat = Value::map([]);
    for part in ["video", "state"] {
        for (name, array) in arrays(observation, part) {
            set(&mut flat, &format!("{part}.{name}"), array.into());
        }
    }
    let text = at(&nested, INSTRUCTION).as_list().unwrap()[0].clone();
    set(&mut flat, "annotation.language.language_instruction", text);
    let mut client = Client::connect(Server::shared().address);
    let answer = client.ask_value(&with(&nested, "data/observation", flat));
    assert!(
        answer.as_list().unwrap()[0].get("action.eef_9d").is_some(),
        "{answer:?}"
    );
    assert_eq!(numbers(&answer), numbers(&client.ask_value(&nested)));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let mut client = Client::connect(Server::shared().address);
    let mut refusal = |options: Value| error(&client.ask_value(&get_action(options))).to_owned();
    assert_eq!(
        refusal(noise_seeds(&[1, 2])),
        "options 'noise_seeds' must be a list of 1 whole numbers, one a row"
    );
    let noise = Value::map([("noise", Array::of_f32(&[1, 2], &[0.0; 2]).into())]);
    assert_eq!(
        refusal(noise),
        "options 'noise' must be a numpy array of shape (1, 40, 132)"
    );
}
