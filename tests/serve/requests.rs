//! Tests of requests that are not in the recordings.

use std::sync::Barrier;

use wire::{Array, Value};

use crate::serve::client::{Client, error, get_action, numbers, seeded};
use crate::serve::server::Server;

/// Returns `value` with the value at `path` replaced.
fn with(value: &Value, path: &[&str], new: Value) -> Value {
    let mut value = value.clone();
    match path {
        [last] => value.set(last, new),
        [first, rest @ ..] => {
            let inner = with(value.get(first).unwrap(), rest, new);
            value.set(first, inner);
        }
        [] => {}
    }
    value
}

#[test]
fn actions_do_not_depend_on_who_else_asks() {
    let server = Server::start(&[]);
    let alone: Vec<_> = (0..6)
        .map(|seed| numbers(&Client::connect(server.address).ask_value(&seeded(seed))))
        .collect();
    assert_ne!(alone[0], alone[1]);
    let (barrier, address) = (&Barrier::new(6), server.address);
    std::thread::scope(|scope| {
        for (seed, alone) in alone.iter().enumerate() {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                barrier.wait();
                for _ in 0..5 {
                    assert_eq!(
                        numbers(&client.ask_value(&seeded(seed as u64))),
                        *alone,
                        "client {seed}"
                    );
                }
            });
        }
    });
}

#[test]
fn requests_that_come_together_are_inferred_together() {
    let server = Server::start(&["--max-batch", "8", "--max-wait", "1000"]);
    let (barrier, address) = (&Barrier::new(4), server.address);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for _ in 0..5 {
                    barrier.wait();
                    numbers(&client.ask_value(&seeded(seed)));
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
        &["data", "observation", "state", "eef_9d"],
        Array::of_f32(&[1, 1, 4], &[0.0; 4]).into(),
    );
    let (barrier, address) = (&Barrier::new(2), server.address);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut client = Client::connect(address);
            for _ in 0..5 {
                barrier.wait();
                let found = numbers(&client.ask_value(&seeded(1)));
                let farthest = found
                    .iter()
                    .zip(&alone)
                    .map(|(a, b)| (a - b).abs())
                    .fold(0.0, f32::max);
                assert!(farthest < 1e-3, "{farthest}");
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
    let server = Server::start(&[]);
    let mut client = Client::connect(server.address);
    let one = get_action(Value::map([(
        "noise_seeds",
        vec![Value::from(5u64)].into(),
    )]));
    let two = |path: &[&str], request: &Value| {
        let array = path
            .iter()
            .fold(request, |value, key| value.get(key).unwrap())
            .as_array()
            .unwrap()
            .clone();
        let mut shape = array.shape().to_vec();
        shape[0] = 2;
        let data = [array.data().as_ref(), array.data().as_ref()].concat();
        with(
            request,
            path,
            Array::new(array.dtype().clone(), shape, data.into())
                .unwrap()
                .into(),
        )
    };
    let mut request = get_action(Value::map([(
        "noise_seeds",
        vec![Value::from(5u64), Value::from(6u64)].into(),
    )]));
    for key in ["exterior_image_1_left", "wrist_image_left"] {
        request = two(&["data", "observation", "video", key], &request);
    }
    for key in ["eef_9d", "gripper_position", "joint_position"] {
        request = two(&["data", "observation", "state", key], &request);
    }
    let path = [
        "data",
        "observation",
        "language",
        "annotation.language.language_instruction",
    ];
    let text = path
        .iter()
        .fold(&one, |value, key| value.get(key).unwrap())
        .as_list()
        .unwrap()[0]
        .clone();
    let request = with(&request, &path, vec![text.clone(), text].into());
    let both = client.ask_value(&request);
    let first = client.ask_value(&one);
    for key in ["eef_9d", "gripper_position", "joint_position"] {
        let of = |answer: &Value| {
            answer.as_list().unwrap()[0]
                .get(key)
                .unwrap()
                .as_array()
                .unwrap()
                .to_f32()
        };
        let (both, first) = (of(&both), of(&first));
        assert_eq!(both.len(), 2 * first.len());
        assert_eq!(both[..first.len()], first);
        assert_ne!(both[first.len()..], first);
    }
}

#[test]
fn an_episode_repeats_when_its_seed_does() {
    let server = Server::start(&[]);
    let mut client = Client::connect(server.address);
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
    let server = Server::start(&[]);
    let nested = get_action(Value::map([(
        "noise_seeds",
        vec![Value::from(5u64)].into(),
    )]));
    let observation = nested.get("data").unwrap().get("observation").unwrap();
    let mut flat = Value::map([]);
    for part in ["video", "state"] {
        let Some(Value::Map(members)) = observation.get(part) else {
            panic!()
        };
        members
            .iter()
            .for_each(|(key, value)| flat.set(&format!("{part}.{}", key.shown()), value.clone()));
    }
    let key = "annotation.language.language_instruction";
    let text = observation
        .get("language")
        .unwrap()
        .get(key)
        .unwrap()
        .as_list()
        .unwrap()[0]
        .clone();
    flat.set(key, text);
    let mut client = Client::connect(server.address);
    let answer = client.ask_value(&with(&nested, &["data", "observation"], flat));
    assert!(
        answer.as_list().unwrap()[0].get("action.eef_9d").is_some(),
        "{answer:?}"
    );
    assert_eq!(numbers(&answer), numbers(&client.ask_value(&nested)));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let server = Server::start(&[]);
    let mut client = Client::connect(server.address);
    let mut refusal = |options: Value| error(&client.ask_value(&get_action(options))).to_owned();
    let seeds = Value::map([(
        "noise_seeds",
        vec![Value::from(1u64), Value::from(2u64)].into(),
    )]);
    assert_eq!(
        refusal(seeds),
        "options 'noise_seeds' must be a list of 1 whole numbers, one a row"
    );
    let noise = Value::map([("noise", Array::of_f32(&[1, 2], &[0.0; 2]).into())]);
    assert_eq!(
        refusal(noise),
        "options 'noise' must be a numpy array of shape (1, 40, 132)"
    );
}
