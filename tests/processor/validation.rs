//! Tests of invalid observations, with one mistake each, and the error messages of the reference.

use models::gr00t::processor::{Modalities, ProcessorConfig};
use runtime::protocols::gr00t::validation::{validate, validate_flat};
use wire::{Array, Dtype, Key, Value};

use crate::processor::files::{cases_with, goldens, json};

const VIEWS: [(&str, [usize; 2]); 2] = [
    ("exterior_image_1_left", [60, 90]),
    ("wrist_image_left", [64, 64]),
];
const STATES: [(&str, usize); 3] = [
    ("eef_9d", 9),
    ("gripper_position", 1),
    ("joint_position", 7),
];
const TASK: &str = "annotation.language.language_instruction";

fn array(descr: &str, shape: &[usize]) -> Value {
    let dtype = Dtype::new(descr).unwrap();
    let bytes = vec![0; shape.iter().product::<usize>() * dtype.size()];
    Array::new(dtype, shape.to_vec(), bytes.into())
        .unwrap()
        .into()
}

fn list(items: &[Value]) -> Value {
    Value::List(items.to_vec())
}

fn map(members: Vec<(&str, Value)>) -> Value {
    let members = members.into_iter();
    Value::Map(
        members
            .map(|(key, value)| (Key::from(key), value))
            .collect(),
    )
}

fn members(object: Value) -> Vec<(Key, Value)> {
    match object {
        Value::Map(members) => members,
        other => panic!("{other:?} is not a map"),
    }
}

fn good() -> Value {
    let video = VIEWS.map(|(key, [height, width])| (key, array("|u1", &[1, 2, height, width, 3])));
    let state = STATES.map(|(key, width)| (key, array("<f4", &[1, 1, width])));
    let language = (TASK, list(&[list(&["open drawer".into()])]));
    map(vec![
        ("video", map(video.to_vec())),
        ("state", map(state.to_vec())),
        ("language", map(vec![language])),
    ])
}

/// Returns the observation as the simulation wrapper sends it.
fn flat() -> Value {
    let mut flat = vec![(Key::from(TASK), list(&["open drawer".into()]))];
    for (part, object) in members(good()) {
        if !part.is("language") {
            let inside = members(object).into_iter();
            let name = |key: &Key| Key::Text(format!("{}.{}", part.shown(), key.shown()));
            flat.extend(inside.map(|(key, value)| (name(&key), value)));
        }
    }
    Value::Map(flat)
}

/// Returns `object` with the value at `path` replaced, added or removed.
fn with(mut object: Value, path: &[&str], value: Option<Value>) -> Value {
    let (key, rest) = path.split_first().unwrap();
    let Value::Map(members) = &mut object else {
        panic!("`{key}` is not inside a map")
    };
    let at = members.iter().position(|(name, _)| name.is(key));
    match (rest, at) {
        ([], Some(at)) => match value {
            Some(value) => members[at].1 = value,
            None => drop(members.remove(at)),
        },
        ([], None) => members.push((Key::from(*key), value.unwrap())),
        (rest, at) => {
            let member = &mut members[at.unwrap()].1;
            *member = with(std::mem::replace(member, Value::Nil), rest, value);
        }
    }
    object
}

/// Returns the observation of a case in validation.json, nested or flat.
fn observation(case: &str) -> Option<Value> {
    const VIEW: &[&str] = &["video", "exterior_image_1_left"];
    const STATE: &[&str] = &["state", "eef_9d"];
    const WORDS: &[&str] = &["language", TASK];
    let one = || Some(list(&[Value::Int(1)]));
    let pictures = |dtype, shape: &[usize]| Some(array(dtype, shape));
    let states = |shape: &[usize]| Some(array("<f4", shape));
    let item = || list(&["open drawer".into()]);
    let (path, value): (&[&str], _) = match case {
        "valid" => return Some(good()),
        "sim: valid" => return Some(flat()),
        "missing video" => (&["video"], None),
        "video not a dict" => (&["video"], one()),
        "missing state" => (&["state"], None),
        "state not a dict" => (&["state"], one()),
        "missing language" => (&["language"], None),
        "language not a dict" => (&["language"], one()),
        "video key missing" => (VIEW, None),
        "video is list" => (VIEW, Some(list(&[Value::Int(0)]))),
        "video float" => (VIEW, pictures("<f4", &[1, 2, 60, 90, 3])),
        "video 4d" => (VIEW, pictures("|u1", &[2, 60, 90, 3])),
        "video horizon" => (VIEW, pictures("|u1", &[1, 1, 60, 90, 3])),
        "video channels" => (VIEW, pictures("|u1", &[1, 2, 60, 90, 1])),
        "video batch mismatch" => {
            let path = &["video", "wrist_image_left"];
            (path, pictures("|u1", &[2, 2, 64, 64, 3]))
        }
        "state key missing" => (STATE, None),
        "state float64" => (STATE, Some(array("<f8", &[1, 1, 9]))),
        "state 2d" => (STATE, states(&[1, 9])),
        "state horizon" => (STATE, states(&[1, 2, 9])),
        "state batch" => (STATE, states(&[2, 1, 9])),
        "state wrong width is accepted here" => (STATE, states(&[1, 1, 4])),
        "language key missing" => (WORDS, None),
        // A message has no tuples.
        "language not list" => return None,
        "language item str" => (WORDS, Some(list(&["open drawer".into()]))),
        "language two steps" => (WORDS, Some(list(&[list(&["a".into(), "b".into()])]))),
        "language int" => (WORDS, Some(list(&[list(&[Value::Int(3)])]))),
        "language batch" => (WORDS, Some(list(&[item(), item()]))),
        "extra keys are ignored" => (&["extra"], Some(Value::Int(1))),
        "sim: video key missing" => (&["video.exterior_image_1_left"], None),
        "sim: state key missing" => (&["state.eef_9d"], None),
        "sim: language missing" => (&[TASK], None),
        "sim: language str" => (&[TASK], Some("open drawer".into())),
        "sim: language of ints" => (&[TASK], one()),
        other => panic!("no observation for case `{other}`"),
    };
    let observation = if case.starts_with("sim: ") {
        flat()
    } else {
        good()
    };
    Some(with(observation, path, value))
}

/// Returns the modalities of the checkpoint with which validation.json was made.
fn modalities(keys: &serde_json::Value) -> Modalities {
    let names = |part: &str| -> Vec<String> { serde_json::from_value(keys[part].clone()).unwrap() };
    let dirs = cases_with("processor_config.json").into_iter();
    let mut all = dirs.flat_map(|dir| {
        ProcessorConfig::read(&dir.join("processor_config.json"))
            .unwrap()
            .embodiments
    });
    let wanted = ["video", "state", "language"].map(names);
    let fits = |found: &Modalities| {
        [&found.video.keys, &found.state.keys, &found.language.keys] == wanted.each_ref()
    };
    all.find(|(_, found)| fits(found))
        .expect("a case has the keys of validation.json")
        .1
}

#[test]
fn mistakes_are_refused_in_the_words_of_the_reference() {
    let file = json(&goldens().join("protocol/validation.json"));
    let modalities = modalities(&file["observation_keys"]);
    for entry in file["messages"].as_array().unwrap() {
        let case = entry["case"].as_str().unwrap();
        let Some(observation) = observation(case) else {
            continue;
        };
        let found = if case.starts_with("sim: ") {
            validate_flat(&observation, &modalities)
                .and_then(|nested| validate(&nested, &modalities).map(drop))
        } else {
            validate(&observation, &modalities).map(drop)
        };
        let found = found.err().map(|refusal| refusal.to_string());
        assert_eq!(found.as_deref(), entry["message"].as_str(), "{case}");
    }
}

#[test]
fn clients_get_the_modalities_of_the_file() {
    for dir in cases_with("processor_config.json") {
        let path = dir.join("processor_config.json");
        let file = &json(&path)["processor_kwargs"]["modality_configs"];
        for (tag, modalities) in ProcessorConfig::read(&path).unwrap().embodiments {
            assert_eq!(modalities.to_json().to_string(), file[&tag].to_string());
        }
    }
}
