//! The mapping of an environment in Python: names of cameras, states and actions.
//!
//! Names, kinds and words are checked here. Whether keys exist and shapes fit is for the process of
//! the simulator to say, which has a real observation (`rrun_mapping.py`).

#![expect(
    dead_code,
    reason = "what a field's type or schema says is not looked at again"
)]

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::refusal::Refusal;
use crate::settings::kinds::{MapOrFile, OneOrMany};
use crate::settings::{self, read_yaml};

const PLACE: &str = "arena_env_args.mapping";

#[derive(Deserialize, JsonSchema)]
struct Mapping {
    #[serde(default)]
    video: BTreeMap<String, KeyOr<Camera>>,
    #[serde(default)]
    state: BTreeMap<String, KeyOr<State>>,
    language: Option<KeyOr<Language>>,
    action: Option<Action>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum KeyOr<T> {
    Key(String),
    Entry(T),
}

#[derive(Deserialize, JsonSchema)]
struct Camera {
    from: Option<String>,
    render: Option<bool>,
    #[schemars(extend("anyOf" = some_of(&["vertical", "horizontal"]),
                      "wanted" = "`vertical`, `horizontal` or a list of them"))]
    flip: Option<OneOrMany>,
    #[schemars(extend("anyOf" = some_of(&["scale", "gray", "drop_alpha"]),
                      "wanted" = "`scale`, `gray`, `drop_alpha` or a list of them"))]
    #[serde(default)]
    convert: OneOrMany,
    #[schemars(extend("enum" = ["hwc", "chw"]))]
    layout: Option<String>,
    #[schemars(extend("wanted" = "two different numbers, the lower one first"))]
    range: Option<[f64; 2]>,
}

#[derive(Deserialize, JsonSchema)]
struct State {
    #[schemars(extend("wanted" = "a key or a list of keys"))]
    from: OneOrMany,
    #[schemars(extend("enum" = ["quat_to_axis_angle", "quat_to_rpy"]))]
    convert: Option<String>,
    #[schemars(extend("enum" = ["xyzw", "wxyz"]))]
    order: Option<String>,
    index: Option<Value>,
    scale: Option<f64>,
    offset: Option<f64>,
}

#[derive(Deserialize, JsonSchema)]
struct Language {
    from: Option<String>,
    info: Option<String>,
    attr: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Action {
    #[schemars(extend("wanted" = "a list of different names"))]
    names: Option<Vec<String>>,
    #[schemars(extend("wanted" = "a list of numbers"))]
    low: Option<Vec<f64>>,
    #[schemars(extend("wanted" = "a list of numbers"))]
    high: Option<Vec<f64>>,
    #[serde(default)]
    transforms: BTreeMap<String, Transform>,
}

#[derive(Deserialize, JsonSchema)]
struct Transform {
    scale: Option<f64>,
    offset: Option<f64>,
    invert: Option<bool>,
    #[schemars(extend("type" = ["boolean", "number"], "wanted" = "true or a threshold"))]
    binarize: Option<Value>,
    #[schemars(extend("wanted" = "two numbers, the lower one first"))]
    clip: Option<[f64; 2]>,
}

fn some_of(words: &[&str]) -> Value {
    let word = json!({"type": "string", "enum": words});
    json!([word, {"type": "array", "items": word}])
}

/// Reads a mapping, or the file with one. It is as it was given, without what is `null`.
///
/// # Errors
/// Refuses the first problem.
pub fn read(given: MapOrFile) -> Result<Map<String, Value>, Refusal> {
    let map = match given {
        MapOrFile::Map(map) => map,
        MapOrFile::File(path) => read_yaml(&path).map_err(|refusal| refusal.inside(PLACE))?,
    };
    let map = settings::given_of::<Mapping>(PLACE, &map)?;
    settings::read::<Mapping>(PLACE, &map)?.check()?;
    Ok(map)
}

impl Mapping {
    fn check(&self) -> Result<(), Refusal> {
        for (name, camera) in entries(&self.video) {
            camera.check(&format!("video.{name}"))?;
        }
        for (name, state) in entries(&self.state) {
            if state.from.0.is_empty() {
                let wanted = "expected a key or a list of keys";
                return Err(found(&format!("state.{name}.from"), json!([]), wanted));
            }
            let index = state.index.as_ref().filter(|index| !is_index(index));
            if let Some(index) = index {
                let wanted = "expected a number, a list of numbers or a slice, for example `0:3`";
                return Err(found(&format!("state.{name}.index"), index.clone(), wanted));
            }
        }
        if let Some(KeyOr::Entry(Language { from, info, attr })) = &self.language
            && [from, info, attr].into_iter().flatten().count() != 1
        {
            let wanted = "expected one of `from`, `info` and `attr`";
            return Err(found("language", json!({}), wanted));
        }
        self.action.as_ref().map_or(Ok(()), Action::check)
    }
}

impl Camera {
    fn check(&self, place: &str) -> Result<(), Refusal> {
        if self.from.is_some() == (self.render == Some(true)) || self.render == Some(false) {
            let wanted = "expected either `from: key` or `render: true`";
            return Err(found(place, json!({}), wanted));
        }
        let wrong = match self.range {
            Some([low, high]) if low >= high => {
                "expected two different numbers, the lower one first"
            }
            Some(_) if !self.convert.0.iter().any(|word| word == "scale") => {
                "which has no effect without `convert: scale`"
            }
            _ => return Ok(()),
        };
        Err(found(&format!("{place}.range"), json!(self.range), wrong))
    }
}

impl Action {
    fn check(&self) -> Result<(), Refusal> {
        let names = self.names.as_ref();
        let different = |names: &&Vec<String>| names.iter().collect::<BTreeSet<_>>().len();
        if let Some(names) =
            names.filter(|names| names.is_empty() || different(names) < names.len())
        {
            let wanted = "expected a list of different names";
            return Err(found("action.names", json!(names), wanted));
        }
        for (name, transform) in &self.transforms {
            let place = |field| format!("action.transforms.{name}.{field}");
            if transform.scale == Some(0.0) {
                return Err(found(
                    &place("scale"),
                    json!(0),
                    "expected a number other than 0",
                ));
            }
            if transform.clip.is_some_and(|[low, high]| low > high) {
                let wanted = "expected two numbers, the lower one first";
                return Err(found(&place("clip"), json!(transform.clip), wanted));
            }
        }
        Ok(())
    }
}

fn entries<T>(all: &BTreeMap<String, KeyOr<T>>) -> impl Iterator<Item = (&String, &T)> {
    all.iter().filter_map(|(name, entry)| match entry {
        KeyOr::Key(_) => None,
        KeyOr::Entry(entry) => Some((name, entry)),
    })
}

fn is_index(index: &Value) -> bool {
    match index {
        Value::Array(items) => !items.is_empty() && items.iter().all(Value::is_i64),
        Value::String(slice) => {
            let is_end = |end: &str| end.trim().is_empty() || end.trim().parse::<i64>().is_ok();
            (2..=3).contains(&slice.split(':').count()) && slice.split(':').all(is_end)
        }
        other => other.is_i64(),
    }
}

fn found(place: &str, found: Value, wanted: &str) -> Refusal {
    Refusal::found(format_args!("{PLACE}.{place}"), &found, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::check_arguments;

    fn given(mapping: &Value) -> MapOrFile {
        serde_json::from_value(mapping.clone()).unwrap()
    }

    #[test]
    fn the_whole_language_is_read() {
        let mapping = json!({
            "video": {"a": "key", "b": {"from": "x.y", "flip": ["vertical"], "layout": "chw"}, "c": {"render": true, "flip": "horizontal"},
                      "d": {"from": "z", "convert": ["scale", "gray"], "range": [0.1, 2]}, "e": {"from": "z", "convert": "drop_alpha"}},
            "state": {"a": "key", "b": {"from": ["x", "y"], "convert": "quat_to_rpy", "order": "wxyz", "index": "0:3"},
                      "c": {"from": "x", "index": [0, -1], "scale": 0.5, "offset": 1}},
            "language": {"info": "task"},
            "action": {"names": ["x", "g"], "low": [0, 0], "high": [1, 1],
                       "transforms": {"g": {"scale": 2, "offset": -1, "invert": true, "binarize": 0.5, "clip": [-1, 1]}}},
        });
        assert_eq!(Value::Object(read(given(&mapping)).unwrap()), mapping);
    }

    #[test]
    fn in_a_file_of_yaml_or_json_y_is_a_name_and_true_is_true() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let wanted = json!({"action": {"names": ["x", "y", "n", "on"]}, "state": {"y": "no"},
                            "video": {"a": {"render": true}}});
        let yaml = "action: {names: [x, y, n, on]}\nstate: {y: no}\nvideo: {a: {render: True}}\n";
        for text in [yaml, &wanted.to_string()] {
            std::fs::write(&file, text).unwrap();
            let found = read(given(&json!(file.path()))).unwrap();
            assert_eq!(Value::Object(found), wanted);
        }
    }

    #[test]
    fn the_launcher_refuses_an_object_that_a_rank_would_refuse() {
        let args = json!({"environment": "gym:a", "mapping": {"video": {"a": {"form": "x"}}}});
        let job = crate::samples::job(json!({"arena_env_args": args}));
        let told = "arena_env_args.mapping.video.a: unknown field `form`; did you mean `from`?";
        assert_eq!(check_arguments(&job).unwrap_err().to_string(), told);
    }
}
