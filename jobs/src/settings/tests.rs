use std::fs;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::*;
use crate::settings::kinds::{
    Count, Edges, Ignored, MapOrFile, OneOrMany, Port, PyName, Seconds, number,
};

/// The settings of a policy that does not exist.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Example {
    /// what is loaded
    #[schemars(extend("path" = "checkpoint"))]
    model_path: PathBuf,
    /// number of actions
    /// to execute [default: all of `model_path`]
    chunk_length: Option<Count>,
    /// element type
    #[serde(default)]
    dtype: Dtype,
    plain: Option<Plain>,
    #[schemars(range(min = 0.0, max = 2.0))]
    temperature: Option<f64>,
    #[schemars(range(min = 1))]
    num_envs: Option<u64>,
    #[serde(default = "yes")]
    cuda_graphs: bool,
    size: Option<Edges>,
    cameras: Option<OneOrMany>,
    factory: Option<PyName>,
    kwargs: Option<Map<String, Value>>,
    mapping: Option<MapOrFile>,
    video: Option<Video>,
    #[serde(flatten)]
    server: Server,
    /// the device is that of the rank
    policy_device: Option<Ignored>,
}

#[derive(Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Dtype {
    /// Half.
    #[default]
    Bfloat16,
    /// Whole.
    Float32,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Plain {
    One,
    Two,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Video {
    fps: Option<Count>,
    sizes: Vec<Edges>,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Server {
    /// port of the server [default: by protocol]
    #[schemars(extend("place" = true))]
    remote_port: Option<Port>,
    /// how long the server may be unavailable
    #[serde(default = "number::<300, Seconds>")]
    #[schemars(extend("place" = true))]
    remote_retry_s: Seconds,
}

/// An object that others may extend.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Open {
    name: String,
    seed: Option<u64>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

fn yes() -> bool {
    true
}

fn object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap()
}

#[test]
fn settings_are_read_or_refused_with_their_place() {
    rig::cases::check("src/settings/cases.txt", |given| {
        let (kind, given) = given.split_once(' ').unwrap();
        let given = object(given);
        match kind {
            "open" => told(read::<Open>("job 1", &given)),
            _ => told(read::<Example>("policy_config_dict", &given)),
        }
    });
}

fn told<T: std::fmt::Debug>(found: Result<T, Refusal>) -> String {
    found.map_or_else(|refusal| refusal.to_string(), |_| "accepted".to_owned())
}

#[test]
fn what_is_given_is_what_the_struct_has() {
    let given = json!({"model_path": "a", "num_envs": 3, "remote_port": 80, "size": [2, 3, 3],
                       "cameras": "top", "dtype": "float32", "temperature": 1});
    let found: Example = read("", given.as_object().unwrap()).unwrap();
    let wanted = Example {
        model_path: "a".into(),
        chunk_length: None,
        dtype: Dtype::Float32,
        plain: None,
        temperature: Some(1.0),
        num_envs: Some(3),
        cuda_graphs: true,
        size: Some(Edges([2, 3])),
        cameras: Some(OneOrMany(vec!["top".to_owned()])),
        factory: None,
        kwargs: None,
        mapping: None,
        video: None,
        server: Server {
            remote_port: Some(Port(80)),
            remote_retry_s: 300.into(),
        },
        policy_device: None,
    };
    assert_eq!(found, wanted);
    let open: Open = read("", &object(r#"{"name": "a", "x": null, "y": [1]}"#)).unwrap();
    assert_eq!(open.rest, object(r#"{"x": null, "y": [1]}"#));
}

#[test]
fn rows_say_what_the_declaration_says() {
    let rows = rows::<Example>();
    let table: Vec<String> = rows
        .iter()
        .map(|row| {
            let marks = [
                (row.is_required, " required"),
                (row.is_of_place, " of place"),
                (row.is_unused, " unused"),
            ];
            let marks: String = marks
                .into_iter()
                .filter_map(|(is_so, mark)| is_so.then_some(mark))
                .collect();
            let (name, wanted) = (&row.name, &row.wanted);
            format!("{name}: {wanted} ({}) {}{marks}", row.default, row.about)
        })
        .collect();
    insta::assert_snapshot!(table.join("\n"), @r"
    model_path: a path () what is loaded required
    chunk_length: a whole number from 1 to 4096 (all of `model_path`) number of actions to execute
    dtype: one of bfloat16, float32 (bfloat16) element type
    plain: one of one, two () 
    temperature: a number from 0 to 2 () 
    num_envs: a whole number above 0 () 
    cuda_graphs: true or false (true) 
    size: height and width from 1 to 4096 () 
    cameras: a string or a list of strings () 
    factory: `file.py:factory` or `package.module:factory` () 
    kwargs: an object () 
    mapping: an object or the path of a YAML or JSON file () 
    video: an object () 
    remote_port: a port from 1 to 65535 (by protocol) port of the server of place
    remote_retry_s: a number of seconds from 0 to 86400 (300) how long the server may be unavailable of place
    policy_device: anything () the device is that of the rank unused
    ");
    assert_eq!(rows[0].path, Some(PathTo::Checkpoint));
    assert_eq!(rows[2].choices(), Some(vec!["bfloat16", "float32"]));
    assert_eq!(rows[1].bounds(), Some((1.0, 4096.0)));
    let types: Vec<Option<&str>> = rows.iter().map(SettingRow::json_type).collect();
    let wanted = [
        "string", "number", "string", "string", "number", "number", "boolean", "array", "array",
        "string", "object", "object", "object", "number", "number",
    ];
    assert_eq!(types[..15], wanted.map(Some));
    assert_eq!(types[15], None);
}

/// Returns a folder and a YAML file in it.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.yaml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

fn over(given: &str, file: &Path) -> Result<Example, Refusal> {
    read_over("policy_config_dict", &object(given), file)
}

#[test]
fn the_object_wins_over_the_file_and_what_is_wrong_in_it_is_named_with_it() {
    rig::cases::check("src/settings/over_files.txt", |given| {
        let (object, text) = given.split_once('\n').unwrap();
        let (_folder, path) = file(text);
        let found = over(object, &path).map(|found| {
            let Example {
                model_path,
                num_envs,
                chunk_length,
                temperature,
                ..
            } = found;
            format!("{model_path:?} {num_envs:?} {chunk_length:?} {temperature:?}")
        });
        let told = found.unwrap_or_else(|refusal| refusal.to_string());
        told.replace(&path.display().to_string(), "policy.yaml")
    });
}

#[test]
fn a_path_in_a_file_is_found_beside_it() {
    let (folder, path) = file("model_path: weights\n");
    assert_eq!(over("{}", &path).unwrap().model_path, Path::new("weights"));
    let weights = folder.path().join("weights");
    fs::write(&weights, "").unwrap();
    assert_eq!(over("{}", &path).unwrap().model_path, weights);
}

#[test]
fn a_callable_is_in_a_file_or_in_a_module() {
    rig::cases::check("src/settings/callables.txt", |name| {
        PyName::of(name).map_or_else(|| "none".to_owned(), |name| format!("{name:?}"))
    });
}
