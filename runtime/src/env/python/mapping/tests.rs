//! Tests of the language of mappings.

use serde_json::json;

use super::*;

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
fn yaml_and_json_files_are_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m");
    std::fs::write(
        &path,
        "video:\n  front: {from: image, flip: [vertical]}\nlanguage: lift\n",
    )
    .unwrap();
    let yaml = read(given(&json!(path))).unwrap();
    std::fs::write(
        &path,
        r#"{"video": {"front": {"from": "image", "flip": ["vertical"]}}, "language": "lift"}"#,
    )
    .unwrap();
    assert_eq!(yaml, read(given(&json!(path))).unwrap());
}

#[test]
fn y_is_a_name_and_no_yes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.yaml");
    std::fs::write(&path, "action: {names: [x, y, n, on]}\nstate: {y: no}\n").unwrap();
    let wanted = json!({"action": {"names": ["x", "y", "n", "on"]}, "state": {"y": "no"}});
    assert_eq!(Value::Object(read(given(&json!(path))).unwrap()), wanted);
}
