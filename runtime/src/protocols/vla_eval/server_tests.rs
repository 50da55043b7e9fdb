use std::sync::Arc;

use bytes::Bytes;
use models::gr00t::processor::{Modalities, ModalityConfig};
use proptest::prelude::*;
use tokio::sync::mpsc;
use wire::{Array, Dialect, Key, Value, VlaEvalKind, VlaEvalMessage};

use crate::policy::{ClientKeys, PolicyFacts, Window};
use crate::protocols::observation::ValidatedRequest;
use crate::protocols::vla_eval::observation::{
    self, PastObservations, Sent, decoded_bytes, picture_bytes, read_picture,
};
use crate::protocols::vla_eval::{self, VlaEvalServer, chosen_seed, greet_early, is_hello};
use crate::serve::card::ServedSpec;
use crate::serve::connections::ConnectionId;
use crate::serve::http;
use crate::serve::request::{RequestError, RequestLimits};
use crate::serve::server::DispatcherMessage;
use crate::serve::session::{ServerCodec as _, Session};

const LIMITS: RequestLimits = RequestLimits {
    max_rows: 1,
    max_picture_edge: 8,
};

fn modality(keys: &[&str], delta_indices: &[i64]) -> ModalityConfig {
    ModalityConfig {
        delta_indices: delta_indices.to_vec(),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..ModalityConfig::default()
    }
}

/// Returns a checkpoint with two views and two states, which looks back.
pub fn card(video: &[i64]) -> ServedSpec {
    let states = [("arm", 2), ("hand", 1)];
    let facts = PolicyFacts {
        policy: "gr00t",
        horizon: 2,
        ..PolicyFacts::default()
    };
    let keys = ClientKeys {
        modalities: Modalities {
            video: modality(&["front", "wrist"], video),
            state: modality(&["arm", "hand"], &[0]),
            action: modality(&["x", "y"], &[0, 1]),
            language: modality(&["task"], &[0]),
        },
        states: states
            .map(|(key, length)| (key.to_owned(), Some(length)))
            .into(),
        actions: vec![("x".to_owned(), 3), ("y".to_owned(), 1)],
        noise_shape: Some([2, 4]),
        seed: 1,
    };
    ServedSpec::of_keys(facts, keys)
}

fn raw(colour: u8) -> Value {
    Array::of_u8(&[1, 2, 3], vec![colour; 6].into()).into()
}

fn encoded(format: &str, data: Vec<u8>) -> Value {
    Value::map([
        ("__image__", true.into()),
        ("format", format.into()),
        ("data", Value::Bytes(data.into())),
        ("dtype", "|u1".into()),
        ("shape", vec![1u64.into(), 2u64.into(), 3u64.into()].into()),
    ])
}

fn png(colour: png::ColorType, [height, width]: [u32; 2], pixels: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(colour);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(pixels).unwrap();
    writer.finish().unwrap();
    file
}

fn observation(images: &[(&str, Value)]) -> Value {
    let images = images.iter();
    let images = images.map(|(name, image)| (Key::from(*name), image.clone()));
    Value::map([
        ("images", Value::Map(images.collect())),
        ("states", Array::of_f32(&[3], &[1.0, 2.0, 3.0]).into()),
        ("task_description", "go".into()),
    ])
}

/// Replaces the states of an observation.
fn set(observation: &mut Value, states: Value) {
    let Value::Map(members) = observation else {
        panic!("{observation:?}")
    };
    members.retain(|(name, _)| !name.is("states"));
    members.push((Key::from("states"), states));
}

fn validated(payload: &Value, card: &ServedSpec) -> Result<ValidatedRequest, String> {
    let seen = Window::new(sent(payload.clone()));
    observation::validated(&seen, card, &LIMITS).map_err(|err| err.to_string())
}

fn sent(observation: Value) -> Arc<Sent> {
    let bytes = 100;
    Arc::new(Sent { observation, bytes })
}

#[test]
fn pictures_go_by_name_or_else_by_place() {
    let colours = |names: [&str; 2]| {
        let sent = observation(&[(names[0], raw(1)), (names[1], raw(2))]);
        let request = validated(&sent, &card(&[0])).unwrap();
        ["front", "wrist"].map(|key| request.rows[0].now().video[key].rgb[0])
    };
    assert_eq!(colours(["front", "wrist"]), [1, 2]);
    assert_eq!(colours(["wrist", "front"]), [2, 1]);
    assert_eq!(colours(["agentview", "eye_in_hand"]), [1, 2]);
    let refusal = validated(&observation(&[("agentview", raw(1))]), &card(&[0])).unwrap_err();
    assert_eq!(
        refusal,
        "the observation has images agentview, expected front, wrist, or as many images in this \
         order"
    );
}

#[test]
fn a_state_is_divided_in_the_order_of_the_checkpoint() {
    let sent = observation(&[("front", raw(1)), ("wrist", raw(2))]);
    let request = validated(&sent, &card(&[0])).unwrap();
    let state = &request.rows[0].now().state;
    assert_eq!(
        (&state["arm"][..], &state["hand"][..]),
        (&[1.0, 2.0][..], &[3.0][..])
    );
    let mut named = sent.clone();
    let hand = Array::of_f32(&[1], &[9.0]).into();
    let arm = Array::of_f32(&[2], &[7.0, 8.0]).into();
    set(&mut named, Value::map([("hand", hand), ("arm", arm)]));
    let request = validated(&named, &card(&[0])).unwrap();
    assert_eq!(request.rows[0].now().state["hand"], [9.0]);
    let mut short = sent;
    set(&mut short, Array::of_f32(&[2], &[1.0, 2.0]).into());
    let refusal = validated(&short, &card(&[0])).unwrap_err();
    assert_eq!(refusal, "the state has 2 values, expected arm 2 + hand 1");
    set(&mut short, Value::Nil);
    let refusal = validated(&short, &card(&[0])).unwrap_err();
    assert!(refusal.contains("'arm'"), "{refusal}");
}

#[test]
fn a_picture_is_read_as_it_was_encoded() {
    let pixels = [1, 2, 3, 4, 5, 6];
    let wanted = Array::of_u8(&[1, 2, 3], pixels.to_vec().into());
    let file = png(png::ColorType::Rgb, [1, 2], &pixels);
    let image = encoded("png", file.clone());
    assert_eq!(read_picture(&image, 8), Ok(wanted.clone()));
    let plain = encoded("raw", pixels.to_vec());
    assert_eq!(read_picture(&plain, 8), Ok(wanted));
    let bytes = [8, 1].map(|edge| picture_bytes(&image, edge));
    assert_eq!(bytes, [6, 0]);
    let grey = png(png::ColorType::Grayscale, [1, 1], &[1]);
    // The head of a file of 2.7 GB, of which nothing else is there.
    let mut head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x75\x30\0\0\x75\x30\x08\x02\0\0\0".to_vec();
    head.extend(0xe945_6fed_u32.to_be_bytes());
    let form = "expected an array [height, width, 3] of uint8, as it is or as PNG";
    for (image, reason) in [
        (encoded("png", file), "1 x 2 pixels, expected at most 1"),
        (encoded("png", head), "30000 x 30000 pixels, expected"),
        (raw(1), "1 x 2 pixels, expected at most 1"),
        (
            encoded("jpeg", Vec::new()),
            "the format `jpeg` is not read, expected png or raw",
        ),
        (encoded("png", grey), "expected RGB of 8"),
        (encoded("png", vec![0; 99]), "not a PNG file: "),
        ("picture".into(), form),
        (encoded("raw", vec![1]), form),
    ] {
        let refused = read_picture(&image, 1).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn a_checkpoint_that_looks_back_gets_earlier_pictures() {
    let card = card(&[-2, 0]);
    let mut past = PastObservations::new(&card.keys.modalities);
    let mut colours = Vec::new();
    for step in 1..=4 {
        let now = sent(observation(&[("front", raw(step)), ("wrist", raw(0))]));
        let seen = past.with(Arc::clone(&now));
        let request = observation::validated(&seen, &card, &LIMITS).unwrap();
        let seen = request.rows[0].at(&[-1, 0]).into_iter();
        colours.push(
            seen.map(|seen| seen.video["front"].rgb[0])
                .collect::<Vec<_>>(),
        );
        past.push(now);
        assert_eq!(past.bytes(), usize::from(step.min(2)) * 100);
    }
    assert_eq!(colours, [[1, 1], [1, 2], [1, 3], [2, 4]]);
    past.clear();
    assert_eq!(past.bytes(), 0);
    let larger = Array::of_u8(&[2, 2, 3], vec![0; 12].into());
    let earlier = observation(&[("front", larger.into()), ("wrist", raw(0))]);
    past.push(sent(earlier));
    let now = observation(&[("front", raw(1)), ("wrist", raw(0))]);
    let refused = observation::validated(&past.with(sent(now)), &card, &LIMITS).unwrap_err();
    let wanted = "`front` has another size than in an earlier step of the episode";
    assert_eq!(refused.to_string(), wanted);
}

#[tokio::test]
async fn an_observation_whose_inference_failed_belongs_to_the_past() {
    let (dispatcher, mut inbox) = mpsc::unbounded_channel();
    let server = http::tests::server(card(&[-2, 0]), None, dispatcher);
    tokio::spawn(async move {
        while let Some(DispatcherMessage::Request(request)) = inbox.recv().await {
            let _ = request
                .reply
                .send(Err(RequestError::new("as a test wants it")));
        }
    });
    let mut codec = VlaEvalServer::new(&server.card, true);
    let mut client = Session::new(server, ConnectionId(0));
    let message = |images: &[(&str, Value)]| VlaEvalMessage {
        kind: VlaEvalKind::Observation,
        payload: observation(images),
        seq: 1,
    };
    let shown = message(&[("front", raw(1)), ("wrist", raw(0))]).write(0.0);
    let bytes = shown.len();
    let failed = codec.answer(&mut client, Ok(shown)).await.outcome;
    assert_eq!(failed, Some(Err(RequestError::new("as a test wants it"))));
    assert_eq!(codec.kept_bytes(), bytes);
    // What is refused was no observation.
    let empty = message(&[]).write(0.0);
    let refused = codec.answer(&mut client, Ok(empty)).await;
    assert!(matches!(refused.outcome, Some(Err(_))));
    assert_eq!(codec.kept_bytes(), bytes);
}

#[test]
fn the_noise_of_an_episode_follows_from_its_task() {
    let seed = |task: Value| chosen_seed(&Value::map([("task", task)]));
    let task = |index: u64| Value::map([("name", "reach".into()), ("episode_idx", index.into())]);
    assert_eq!(seed(Value::map([("seed", 7u64.into())])), Some(7));
    assert!(seed(task(1)).is_some() && seed(task(1)) == seed(task(1)));
    assert_ne!(seed(task(1)), seed(task(2)));
    assert_eq!(seed(Value::map([])), None);
    assert_eq!(chosen_seed(&Value::map([])), None);
}

#[test]
fn openpis_metadata_is_a_hello_of_vla_eval() {
    let mut metadata = Value::map([("policy", "gr00t".into())]);
    greet_early(&mut metadata, &card(&[0]));
    let policy = metadata.get("policy").and_then(Value::as_text);
    assert_eq!(policy, Some("gr00t"));
    let bytes = Bytes::from(wire::write(&metadata, Dialect::Openpi));
    let hello = VlaEvalMessage::read(&bytes).unwrap();
    assert_eq!(hello, vla_eval::hello(&card(&[0]), 0));
    let parameters = hello.payload.get("observation_params").unwrap();
    assert_eq!(parameters.get("send_wrist_image"), Some(&Value::Bool(true)));
    let actions = hello.payload.get("action_spec").unwrap().get("actions");
    assert_eq!(actions.unwrap().get("dims"), Some(&Value::Int(4)));
}

#[test]
fn a_client_is_known_by_its_hello() {
    let hello = vla_eval::hello(&card(&[0]), 1).write(0.0);
    assert!(is_hello(&hello));
    let prompt = Value::map([("prompt", "x".into())]);
    assert!(!is_hello(&wire::write(&prompt, Dialect::Openpi)));
    assert!(!is_hello(b"\xc1"));
}

proptest! {
    #[test]
    fn any_picture_is_read_or_refused(at in 0usize..80, with in any::<u8>(), cut in 0usize..80) {
        let mut file = png(png::ColorType::Rgb, [1, 2], &[1, 2, 3, 4, 5, 6]);
        let at = at % file.len();
        file[at] = with;
        file.truncate(file.len() - cut % file.len());
        let image = encoded("png", file);
        let _ = picture_bytes(&image, 8);
        if let Ok(array) = read_picture(&image, 8) {
            prop_assert!(array.data().len() <= 8 * 8 * 3);
        }
    }

    #[test]
    fn any_observation_is_taken_or_refused(at in 0usize..400, with in any::<u8>()) {
        let file = png(png::ColorType::Rgb, [1, 2], &[1, 2, 3, 4, 5, 6]);
        let taken = observation(&[("front", encoded("png", file)), ("wrist", raw(1))]);
        let mut bytes = wire::write(&taken, Dialect::VlaEval);
        let at = at % bytes.len();
        bytes[at] = with;
        if let Ok(message) = wire::read(&bytes.into()) {
            let card = Arc::new(card(&[-1, 0]));
            let seen = Window::new(sent(message.value.clone()));
            let _ = decoded_bytes(&seen, &card, 8);
            let _ = validated(&message.value, &card);
        }
    }
}
