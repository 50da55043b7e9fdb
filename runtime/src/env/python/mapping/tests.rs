//! Tests of the language of mappings.

use serde_json::json;

use super::*;

fn refusal(mapping: Value) -> String {
    read(&mapping).unwrap_err().to_string()
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
    assert_eq!(Value::Object(read(&mapping).unwrap()), mapping);
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
    let yaml = read(&json!(path)).unwrap();
    std::fs::write(
        &path,
        r#"{"video": {"front": {"from": "image", "flip": ["vertical"]}}, "language": "lift"}"#,
    )
    .unwrap();
    assert_eq!(yaml, read(&json!(path)).unwrap());
    assert!(refusal(json!("no/such/file")).contains("cannot be read"));
}

#[test]
fn y_is_a_name_and_no_yes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.yaml");
    std::fs::write(&path, "action: {names: [x, y, n, on]}\nstate: {y: no}\n").unwrap();
    let wanted = json!({"action": {"names": ["x", "y", "n", "on"]}, "state": {"y": "no"}});
    assert_eq!(Value::Object(read(&json!(path)).unwrap()), wanted);
}

#[test]
fn what_is_wrong_is_refused_by_its_place() {
    let table = [
        (
            json!(3),
            "`arena_env_args.mapping` is 3, expected an object or the path",
        ),
        (
            json!({"vidoe": {}}),
            "`arena_env_args.mapping.vidoe` is {}, but there is no such field; did you mean `video`?",
        ),
        (
            json!({"video": {"a": {"form": "x"}}}),
            "`arena_env_args.mapping.video.a.form` is \"x\", but there is no such field",
        ),
        (
            json!({"video": {"a": {}}}),
            "`arena_env_args.mapping.video.a` is {}, expected either `from: key` or `render: true`",
        ),
        (
            json!({"video": {"a": {"from": "x", "flip": "up"}}}),
            "`arena_env_args.mapping.video.a.flip` is \"up\"",
        ),
        (
            json!({"video": {"a": {"from": "x", "convert": "grey"}}}),
            "`arena_env_args.mapping.video.a.convert` is \"grey\", expected `scale`, `gray`",
        ),
        (
            json!({"video": {"a": {"from": "x", "convert": "scale", "range": [1, 1]}}}),
            "`arena_env_args.mapping.video.a.range` is [1,1], expected two different numbers",
        ),
        (
            json!({"video": {"a": {"from": "x", "convert": "gray", "range": [0, 1]}}}),
            "`arena_env_args.mapping.video.a.range` is [0,1], which has no effect without",
        ),
        (
            json!({"state": []}),
            "`arena_env_args.mapping.state` is [], expected an object",
        ),
        (
            json!({"state": {"a": {"from": []}}}),
            "`arena_env_args.mapping.state.a.from` is [], expected a key or a list",
        ),
        (
            json!({"state": {"a": {"from": "x", "index": "a:b"}}}),
            "`arena_env_args.mapping.state.a.index` is \"a:b\"",
        ),
        (
            json!({"state": {"a": {"from": "x", "convert": "x"}}}),
            "`arena_env_args.mapping.state.a.convert` is \"x\", expected one of",
        ),
        (
            json!({"language": {}}),
            "`arena_env_args.mapping.language` is {}, expected one of `from`",
        ),
        (
            json!({"action": {"names": ["x", "x"]}}),
            "`arena_env_args.mapping.action.names` is [\"x\",\"x\"], expected a list of different",
        ),
        (
            json!({"action": {"transforms": {"g": {"clip": [1, 0]}}}}),
            "`arena_env_args.mapping.action.transforms.g.clip` is [1,0], expected two numbers, the lower one first",
        ),
        (
            json!({"action": {"transforms": {"g": {"scale": 0}}}}),
            "`arena_env_args.mapping.action.transforms.g.scale` is 0",
        ),
    ];
    for (mapping, reason) in table {
        assert!(
            refusal(mapping.clone()).starts_with(reason),
            "{}",
            refusal(mapping)
        );
    }
}
