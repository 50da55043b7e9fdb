//! Tests with messages of the reference in both directions, and with invalid ones.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;

fn protocol() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gr00t/protocol")
}

fn file(name: &str) -> Bytes {
    std::fs::read(protocol().join(name)).unwrap().into()
}

fn unhex(text: &str) -> Bytes {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect::<Vec<_>>()
        .into()
}

fn refusal(bytes: &[u8]) -> String {
    let err = read(&Bytes::copy_from_slice(bytes)).unwrap_err();
    err.to_string()
}

#[test]
fn messages_of_the_reference_are_read_and_written_byte_for_byte() {
    let mut seen = 0;
    for entry in std::fs::read_dir(protocol()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".bin")
            || ["garbage.request.bin", "object_array.request.bin"].contains(&&*name)
        {
            continue;
        }
        let bytes = file(&name);
        let message = read(&bytes).unwrap_or_else(|err| panic!("{name}: {err}"));
        let dialect = if name.starts_with("legacy_") {
            Dialect::Npy
        } else {
            Dialect::Kind
        };
        assert!(
            message.dialect.is_none_or(|found| found == dialect),
            "{name}"
        );
        assert_eq!(write(&message.value, dialect), bytes, "{name}");
        seen += 1;
    }
    assert!(seen >= 25, "{seen} files");
}

#[test]
fn arrays_of_the_reference_have_their_numbers() {
    let cases: Json = serde_json::from_slice(&file("ndarray_encodings.json")).unwrap();
    for (name, case) in cases.as_object().unwrap() {
        let bytes = unhex(case["hex"].as_str().unwrap());
        let message = read(&bytes).unwrap();
        let array = match message.value.get("v").unwrap() {
            Value::Array(array) => array.clone(),
            number => {
                let only: f64 = serde_json::from_value(case["values"][0].clone()).unwrap();
                let is_it = match number {
                    Value::Int(found) => *found as f64 == only,
                    found => *found == Value::Float(only),
                };
                assert!(
                    is_it && case["shape"] == serde_json::json!([]),
                    "{name}: {number:?}"
                );
                continue;
            }
        };
        let shape: Vec<u64> = array.shape().iter().map(|edge| *edge as u64).collect();
        assert_eq!(serde_json::json!(shape), case["shape"], "{name}");
        assert_eq!(
            array.dtype().descr(),
            case["dtype"].as_str().unwrap(),
            "{name}"
        );
        let numbers: Vec<f64> = array.to_f32().into_iter().map(f64::from).collect();
        assert_eq!(serde_json::json!(numbers), case["values"], "{name}");
        assert_eq!(write(&message.value, Dialect::Kind), bytes, "{name}");
    }
}

#[test]
fn an_array_of_the_older_dialect_is_an_npy_file() {
    let cases: Json = serde_json::from_slice(&file("legacy_index.json")).unwrap();
    let bytes = unhex(cases["example_f32_2x3_hex"].as_str().unwrap());
    let value = Value::map([(
        "v",
        Array::of_f32(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).into(),
    )]);
    assert_eq!(
        read(&bytes).unwrap(),
        DecodedMessage {
            value: value.clone(),
            dialect: Some(Dialect::Npy)
        }
    );
    assert_eq!(write(&value, Dialect::Npy), bytes);
}

#[test]
fn openpis_arrays_are_read_and_written() {
    // The output of openpi_client 0.1.2: msgpack_numpy.packb({"a": np.zeros((1, 2), np.uint8), "b":
    // np.float32(1.5)})
    let bytes = unhex(
        "82a16184c40b5f5f6e6461727261795f5fc3c40464617461c4020000c4056474797065a37c7531c4057368617065920102\
         a16283c40d5f5f6e7067656e657269635f5fc3c40464617461cb3ff8000000000000c4056474797065a33c6634",
    );
    let message = read(&bytes).unwrap();
    assert_eq!(message.dialect, Some(Dialect::Openpi));
    assert_eq!(message.value.get("b"), Some(&Value::Float(1.5)));
    let array = message.value.get("a").and_then(Value::as_array).unwrap();
    assert_eq!(
        (array.dtype().name().as_str(), array.shape()),
        ("uint8", &[1, 2][..])
    );
    let again = write(&Value::map([("a", array.clone().into())]), Dialect::Openpi);
    assert_eq!(again[1..], bytes[1..again.len()]);
}

#[test]
fn arrays_are_slices_of_the_message() {
    let bytes = file("get_action.request.bin");
    let message = read(&bytes).unwrap();
    let video = message
        .value
        .get("data")
        .and_then(|data| data.get("observation"))
        .and_then(|all| all.get("video"));
    let picture = video
        .and_then(|video| video.get("wrist_image_left"))
        .and_then(Value::as_array)
        .unwrap();
    assert!(bytes.as_ptr_range().contains(&picture.data().as_ptr()));
}

#[test]
fn columns_become_rows() {
    // numpy: np.asfortranarray([[1, 2, 3], [4, 5, 6]], "u1")
    let header = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n";
    let mut npy = b"\x93NUMPY\x01\x00".to_vec();
    npy.extend((header.len() as u16).to_le_bytes());
    npy.extend(header.as_bytes());
    npy.extend([1, 4, 2, 5, 3, 6]);
    let array = npy::read(&npy.into()).unwrap();
    assert_eq!(
        (array.shape(), &array.data()[..]),
        (&[2, 3][..], &[1, 2, 3, 4, 5, 6][..])
    );
}

/// Returns a column-major npy file, as numpy saves the result of `np.asfortranarray(…)`.
fn columns(descr: &str, shape: &[usize], data: Vec<u8>) -> Bytes {
    let edges: String = shape.iter().map(|edge| format!("{edge}, ")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': True, 'shape': ({edges}), }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &data]
        .concat()
        .into()
}

/// Converts to row-major order, one element at a time by its indices: slow but obviously correct.
fn by_indices(shape: &[usize], size: usize, columns: &[u8]) -> Vec<u8> {
    let mut rows = Vec::new();
    for mut number in 0..columns.len() / size {
        let (mut at, mut stride) = (0, shape.iter().product::<usize>());
        for edge in shape.iter().rev() {
            stride /= edge;
            at += number % edge * stride;
            number /= edge;
        }
        rows.extend_from_slice(&columns[at * size..][..size]);
    }
    rows
}

/// With one step for every element and dimension, 60 MB with 64 dimensions took half a minute in
/// the thread of all connections. This test counts dimensions rather than seconds: dimensions of
/// size 1 must not be iterated for every element.
#[test]
fn columns_of_many_edges_become_rows() {
    let mut shape = vec![1; 64];
    (shape[3], shape[40], shape[63]) = (70, 3, 41);
    let data: Vec<u8> = (0..70 * 3 * 41 * 2)
        .map(|number| (number % 251) as u8)
        .collect();
    let array = npy::read(&columns("<u2", &shape, data.clone())).unwrap();
    assert_eq!(array.data(), &by_indices(&shape, 2, &data));
}

#[test]
fn what_cannot_be_read_is_refused_by_its_first_problem() {
    assert!(refusal(&file("garbage.request.bin")).starts_with("not msgpack: byte "));
    let fixed = read(&file("object_array.response.bin")).unwrap().value;
    assert_eq!(
        Some(refusal(&file("object_array.request.bin")).as_str()),
        fixed.get("error").and_then(Value::as_text)
    );
    let incomplete = |bytes| format!("the message is {bytes} bytes long and ends within a value");
    assert_eq!(refusal(b""), incomplete(0));
    assert_eq!(refusal(b"\xdd\xff\xff\xff\xff"), incomplete(5));
    assert_eq!(refusal(b"\xdf\xff\xff\xff\xff"), incomplete(5));
    assert_eq!(refusal(b"\x01\x02"), "1 bytes follow the message");
    assert_eq!(
        refusal(b"\x81\x01\x02"),
        "a key of a map is int, expected str or bytes"
    );
    assert_eq!(
        refusal(b"\xa2\xe2x"),
        "a string is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0"
    );
}

#[test]
fn an_array_that_lies_about_itself_is_refused() {
    let lie = |dtype: &str, shape: &[u64], data: &'static [u8]| {
        let edges = shape
            .iter()
            .map(|edge| Value::from(*edge))
            .collect::<Vec<_>>();
        let key = |name: &'static str| Key::Bytes(Bytes::from_static(name.as_bytes()));
        let members = vec![
            (key("nd"), true.into()),
            (key("type"), dtype.into()),
            (key("kind"), Value::Bytes(Bytes::new())),
            (key("shape"), edges.into()),
            (key("data"), Value::Bytes(Bytes::from_static(data))),
        ];
        refusal(&write(&Value::Map(members), Dialect::Kind))
    };
    assert_eq!(
        lie("<f4", &[3], b"12345678"),
        "an array has 8 bytes, its shape [3] needs more"
    );
    assert_eq!(
        lie("|u1", &[u64::MAX, 2], b""),
        "an array has 0 bytes, its shape [18446744073709551615, 2] needs more"
    );
    assert_eq!(
        lie("|u1", &[u64::MAX, 2, 0], b""),
        "an array has 0 bytes, its shape [18446744073709551615, 2, 0] needs more"
    );
    assert_eq!(lie("<q9", &[1], b"1"), "data type '<q9' not understood");
    assert_eq!(
        lie("|u1", &[1; 65], b"1"),
        "an array's `shape` is missing or of a wrong type",
        "numpy has 64 edges at most"
    );
    assert!(lie("|O", &[1], b"12345678").starts_with("Refusing to decode object-dtype"));
}

#[test]
fn depth_and_number_of_values_have_limits() {
    assert_eq!(refusal(&[0x91; 1000]), "values are nested deeper than 64");
    let mut many = vec![0xdd];
    many.extend(100_000u32.to_be_bytes());
    many.extend([0xc0; 100_000]);
    assert_eq!(refusal(&many), "the message has more than 65536 values");
    // 1000 lists, each of which claims to contain the rest of the message.
    let mut promises = vec![0xdc, 0x03, 0xe8];
    promises.extend([0xdc, 0xff, 0xff].repeat(1000));
    assert!(refusal(&promises).ends_with("ends within a value"));
}

/// Generates any value of the forms that both sides write.
fn values() -> impl Strategy<Value = Value> {
    let array = (
        proptest::collection::vec(0usize..4, 0..4),
        proptest::sample::select(vec!["<f4", "|u1", ">i2", "<f8", "|b1"]),
    );
    let array = array.prop_map(|(shape, descr)| {
        let dtype = Dtype::new(descr).unwrap();
        let bytes = vec![1; shape.iter().product::<usize>() * dtype.size()];
        Value::Array(Array::new(dtype, shape, bytes.into()).unwrap())
    });
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (i64::MAX as u64 + 1..).prop_map(Value::Large),
        (-1e300..1e300f64).prop_map(Value::Float),
        ".{0,40}".prop_map(Value::Text),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Value::Bytes(bytes.into())),
        array,
    ];
    leaf.prop_recursive(4, 60, 20, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..20).prop_map(Value::List),
            proptest::collection::vec(("[a-z]{0,40}".prop_map(Key::Text), inner), 0..20)
                .prop_map(Value::Map),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(value in values(), dialect in prop_oneof![Just(Dialect::Npy), Just(Dialect::Kind), Just(Dialect::Openpi), Just(Dialect::VlaEval)]) {
        let bytes = Bytes::from(write(&value, dialect));
        prop_assert_eq!(read(&bytes).unwrap().value, value);
    }

    #[test]
    fn columns_are_turned_as_by_their_indices(shape in proptest::collection::vec(1usize..40, 0..4), which in 0usize..4) {
        let (descr, size) = [("|u1", 1), ("<i2", 2), ("<f4", 4), ("<f8", 8)][which];
        let data: Vec<u8> = (0..shape.iter().product::<usize>() * size).map(|number| (number % 251) as u8).collect();
        let array = npy::read(&columns(descr, &shape, data.clone())).unwrap();
        prop_assert_eq!(array.data(), &by_indices(&shape, size, &data));
    }
}
