//! Tests of invalid observations, with one mistake each, and the error messages of the reference.

use gr00t::client::{ClientObservations, PyArray, PyObject, validate, validate_flat};
use gr00t::processor::{Modalities, Processor, ProcessorConfig};
use serde_json::Value;

use crate::processor::files::{cases_with, droid, goldens, json};

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

fn array(dtype: &str, shape: &[usize]) -> PyObject {
    let item = match dtype {
        "uint8" => 1,
        "float32" => 4,
        _ => 8,
    };
    let bytes = vec![0; shape.iter().product::<usize>() * item];
    PyObject::Array(PyArray::new(dtype, item, shape, bytes.into()).unwrap())
}

fn text(text: &str) -> PyObject {
    PyObject::Text(text.to_owned())
}

fn list(items: &[PyObject]) -> PyObject {
    PyObject::List(items.to_vec())
}

fn map(members: Vec<(&str, PyObject)>) -> PyObject {
    let members = members.into_iter();
    PyObject::Map(
        members
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
    )
}

fn members(object: PyObject) -> Vec<(String, PyObject)> {
    match object {
        PyObject::Map(members) => members,
        other => panic!("{other:?} is not a map"),
    }
}

fn good() -> PyObject {
    let video =
        VIEWS.map(|(key, [height, width])| (key, array("uint8", &[1, 2, height, width, 3])));
    let state = STATES.map(|(key, width)| (key, array("float32", &[1, 1, width])));
    let language = (TASK, list(&[list(&[text("open drawer")])]));
    map(vec![
        ("video", map(video.to_vec())),
        ("state", map(state.to_vec())),
        ("language", map(vec![language])),
    ])
}

/// Returns the observation as the simulation wrapper sends it.
fn flat() -> PyObject {
    let mut flat = vec![(TASK.to_owned(), list(&[text("open drawer")]))];
    for (part, object) in members(good()) {
        if part != "language" {
            let inside = members(object).into_iter();
            flat.extend(inside.map(|(key, value)| (format!("{part}.{key}"), value)));
        }
    }
    PyObject::Map(flat)
}

/// Returns `object` with the value at `path` replaced, added or removed.
fn with(mut object: PyObject, path: &[&str], value: Option<PyObject>) -> PyObject {
    let (key, rest) = path.split_first().unwrap();
    let PyObject::Map(members) = &mut object else {
        panic!("`{key}` is not inside a map")
    };
    let at = members.iter().position(|(name, _)| name == key);
    match (rest, at) {
        ([], Some(at)) => match value {
            Some(value) => members[at].1 = value,
            None => drop(members.remove(at)),
        },
        ([], None) => members.push(((*key).to_owned(), value.unwrap())),
        (rest, at) => {
            let member = &mut members[at.unwrap()].1;
            *member = with(std::mem::replace(member, PyObject::None), rest, value);
        }
    }
    object
}

/// Returns the observation of a case in validation.json, nested or flat.
fn observation(case: &str) -> PyObject {
    const VIEW: &[&str] = &["video", "exterior_image_1_left"];
    const STATE: &[&str] = &["state", "eef_9d"];
    const WORDS: &[&str] = &["language", TASK];
    let one = || Some(list(&[PyObject::Int(1)]));
    let pictures = |dtype, shape: &[usize]| Some(array(dtype, shape));
    let states = |shape: &[usize]| Some(array("float32", shape));
    let item = || list(&[text("open drawer")]);
    let (path, value): (&[&str], _) = match case {
        "valid" => return good(),
        "sim: valid" => return flat(),
        "missing video" => (&["video"], None),
        "video not a dict" => (&["video"], one()),
        "missing state" => (&["state"], None),
        "state not a dict" => (&["state"], one()),
        "missing language" => (&["language"], None),
        "language not a dict" => (&["language"], one()),
        "video key missing" => (VIEW, None),
        "video is list" => (VIEW, Some(list(&[PyObject::Int(0)]))),
        "video float" => (VIEW, pictures("float32", &[1, 2, 60, 90, 3])),
        "video 4d" => (VIEW, pictures("uint8", &[2, 60, 90, 3])),
        "video horizon" => (VIEW, pictures("uint8", &[1, 1, 60, 90, 3])),
        "video channels" => (VIEW, pictures("uint8", &[1, 2, 60, 90, 1])),
        "video batch mismatch" => {
            let path = &["video", "wrist_image_left"];
            (path, pictures("uint8", &[2, 2, 64, 64, 3]))
        }
        "state key missing" => (STATE, None),
        "state float64" => (STATE, Some(array("float64", &[1, 1, 9]))),
        "state 2d" => (STATE, states(&[1, 9])),
        "state horizon" => (STATE, states(&[1, 2, 9])),
        "state batch" => (STATE, states(&[2, 1, 9])),
        "state wrong width is accepted here" => (STATE, states(&[1, 1, 4])),
        "language key missing" => (WORDS, None),
        "language not list" => (WORDS, Some(PyObject::Tuple(vec![item()]))),
        "language item str" => (WORDS, Some(list(&[text("open drawer")]))),
        "language two steps" => (WORDS, Some(list(&[list(&[text("a"), text("b")])]))),
        "language int" => (WORDS, Some(list(&[list(&[PyObject::Int(3)])]))),
        "language batch" => (WORDS, Some(list(&[item(), item()]))),
        "extra keys are ignored" => (&["extra"], Some(PyObject::Int(1))),
        "sim: video key missing" => (&["video.exterior_image_1_left"], None),
        "sim: state key missing" => (&["state.eef_9d"], None),
        "sim: language missing" => (&[TASK], None),
        "sim: language str" => (&[TASK], Some(text("open drawer"))),
        "sim: language of ints" => (&[TASK], one()),
        other => panic!("no observation for case `{other}`"),
    };
    let observation = if case.starts_with("sim: ") {
        flat()
    } else {
        good()
    };
    with(observation, path, value)
}

/// Returns the modalities of the checkpoint with which validation.json was made.
fn modalities(keys: &Value) -> Modalities {
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
        let observation = observation(case);
        let found = if case.starts_with("sim: ") {
            validate_flat(&observation, &modalities)
                .and_then(|nested| validate(&nested, &modalities))
        } else {
            validate(&observation, &modalities)
        };
        let found = found.err().map(|refusal| refusal.to_string());
        assert_eq!(found.as_deref(), entry["message"].as_str(), "{case}");
    }
}

#[test]
fn a_checked_observation_splits_into_its_samples() {
    let keys = &json(&goldens().join("protocol/validation.json"))["observation_keys"];
    let modalities = modalities(keys);
    let object = good();
    let observations = ClientObservations::read(&object, &modalities).unwrap();
    let samples = observations.rows().unwrap();
    assert_eq!((observations.size(), samples.len()), (1, 1));
    assert_eq!(samples[0].instruction, "open drawer");
    assert_eq!(samples[0].video["wrist_image_left"].len(), 2);
    assert_eq!(samples[0].state["eef_9d"].width(), 9);
}

#[test]
fn a_wrong_width_that_validation_lets_through_is_refused_by_name() {
    let tag = "OXE_DROID_RELATIVE_EEF_RELATIVE_JOINT";
    let processor = Processor::open(&droid(), None, tag).unwrap();
    let object = observation("state wrong width is accepted here");
    let observations = ClientObservations::read(&object, processor.modalities()).unwrap();
    let refused = processor.prepare(&observations.rows().unwrap());
    let refusal = refused.unwrap_err().to_string();
    assert_eq!(refusal, "state `eef_9d` is 4 values wide, expected 9");
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
