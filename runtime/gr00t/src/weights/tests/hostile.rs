use proptest::prelude::*;

use super::*;

/// Returns a valid header of three tensors.
fn header() -> Value {
    json!({
        "__metadata__": {"format": "pt"},
        "a": entry("F32", &[2, 2], 0, 16),
        "b": entry("BF16", &[3], 16, 22),
        "c": entry("F32", &[1], 22, 26),
    })
}

fn index(pairs: &str) -> (&'static str, Vec<u8>) {
    (
        INDEX,
        format!("{{\"metadata\": {{}}, \"weight_map\": {{{pairs}}}}}").into_bytes(),
    )
}

fn shard(name: &'static str, tensor: &str) -> (&'static str, Vec<u8>) {
    (
        name,
        safetensors(&json!({tensor: entry("F32", &[1], 0, 4)}).to_string(), 4),
    )
}

/// Opens any checkpoint and takes all tensors that it claims to have.
fn open_and_take(dir: &TempDir) -> Result<(), LoadError> {
    let mut weights = open(dir, Kind::Float)?;
    let WeightSource::Checkpoint(checkpoint) = &weights.source else {
        return Ok(());
    };
    let found: Vec<_> = checkpoint.names().map(str::to_owned).collect();
    let shapes: Vec<_> = found
        .iter()
        .map(|name| checkpoint.find(name).unwrap().1.shape.clone())
        .collect();
    found
        .iter()
        .zip(&shapes)
        .for_each(|(name, shape)| drop(weights.take(name, shape)));
    weights.finish().map(drop)
}

#[test]
fn a_directory_without_weights_is_refused() {
    let dir = directory(&[]);
    let wanted = "has no `model.safetensors` or `model.safetensors.index.json`";
    assert_eq!(
        refusal(&dir),
        format!("`{}` {wanted}", dir.path().display())
    );
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = safetensors(&header().to_string(), 26);
    for length in 0..whole.len() {
        let dir = directory(&[("model.safetensors", whole[..length].to_vec())]);
        let text = refusal(&dir);
        assert!(
            text.contains("model.safetensors`: not a safetensors file: "),
            "{length}: {text}"
        );
    }
}

#[test]
fn trailing_bytes_are_refused() {
    let described = safetensors(&header().to_string(), 26).len();
    let text = refusal(&single(&header(), 27));
    assert!(
        text.ends_with(&format!(
            "{} bytes long, but the header describes {described}",
            described + 1
        )),
        "{text}"
    );
}

#[test]
fn overlaps_gaps_and_overflows_are_refused() {
    for (header, size) in [
        (
            json!({"a": entry("F32", &[1], 0, 4), "b": entry("F32", &[1], 2, 6)}),
            6,
        ),
        (
            json!({"a": entry("F32", &[1], 0, 4), "b": entry("F32", &[1], 0, 4)}),
            4,
        ),
        (
            json!({"a": entry("F32", &[1], 0, 4), "b": entry("F32", &[1], 8, 12)}),
            12,
        ),
        (json!({"a": entry("F32", &[2], 0, 4)}), 4),
        (json!({"a": entry("F32", &[i64::MAX, 8], 0, 4)}), 4),
        (json!({"a": entry("F32", &[1], u64::MAX - 3, u64::MAX)}), 4),
        (json!({"a": entry("F32", &[1], 4, 0)}), 4),
        (json!({"a": entry("F32", &[-1], 0, 4)}), 4),
        (json!({"a": entry("F31", &[1], 0, 4)}), 4),
    ] {
        let text = refusal(&single(&header, size));
        assert!(
            text.contains("model.safetensors`: not a safetensors file: "),
            "{header}: {text}"
        );
    }
}

#[test]
fn a_header_longer_than_the_file_is_refused_unread() {
    for length in [u64::MAX, 1 << 40, 100_000_001, 100] {
        let file = [length.to_le_bytes().as_slice(), b"{}"].concat();
        let text = refusal(&directory(&[("model.safetensors", file)]));
        assert!(
            text.ends_with(&format!(
                "a header of {length} bytes is announced in a file of 10"
            )),
            "{text}"
        );
    }
}

#[test]
fn a_name_that_is_there_twice_is_refused() {
    let one = entry("F32", &[1], 0, 4);
    let file = safetensors(&format!("{{\"a\": {one}, \"a\": {one}}}"), 4);
    let text = refusal(&directory(&[("model.safetensors", file)]));
    assert!(text.ends_with("tensor `a` is listed twice"), "{text}");
    let text = refusal(&directory(&[index(
        r#""a": "x.safetensors", "a": "y.safetensors""#,
    )]));
    assert!(
        text.ends_with("model.safetensors.index.json`: tensor `a` is listed twice"),
        "{text}"
    );
}

#[test]
fn an_index_does_not_lead_out_of_its_directory() {
    for path in [
        "../x.safetensors",
        "/etc/x.safetensors",
        "sub/x.safetensors",
        "..",
        "",
        ".x.safetensors",
        "x.bin",
    ] {
        let text = refusal(&directory(&[index(&format!("\"a\": {path:?}"))]));
        let wanted =
            format!("tensor `a` is in {path:?}, expected a .safetensors file beside the index");
        assert!(text.ends_with(&wanted), "{text}");
    }
}

#[test]
fn a_shard_that_is_not_there_is_named() {
    let text = refusal(&directory(&[index(r#""a": "x.safetensors""#)]));
    assert!(
        text.ends_with("has no `x.safetensors`, a shard of `model.safetensors.index.json`"),
        "{text}"
    );
}

#[test]
fn an_index_and_its_shards_must_agree() {
    let text = refusal(&directory(&[
        index(r#""a": "x.safetensors""#),
        shard("x.safetensors", "b"),
    ]));
    assert!(
        text.contains("index.json`: tensor `a` is not in `") && text.ends_with("x.safetensors`"),
        "{text}"
    );
    let (x, y) = (shard("x.safetensors", "a"), shard("y.safetensors", "b"));
    let two = index(r#""a": "x.safetensors", "b": "y.safetensors""#);
    open_and_take(&directory(&[two.clone(), x.clone(), y])).unwrap();
    let both = safetensors(
        &json!({"a": entry("F32", &[1], 0, 4), "b": entry("F32", &[1], 4, 8)}).to_string(),
        8,
    );
    let text = refusal(&directory(&[two, x, ("y.safetensors", both)]));
    assert!(
        text.contains("index.json`: tensor `a` of `")
            && text.ends_with("y.safetensors` is not in the index")
    );
}

#[test]
fn an_index_without_a_map_is_refused() {
    let text = refusal(&directory(&[(INDEX, b"{}".to_vec())]));
    assert!(
        text.contains("index.json`: missing field `weight_map`"),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_are_an_error_with_the_file(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let dir = directory(&[("model.safetensors", bytes)]);
        prop_assert!(refusal(&dir).contains("model.safetensors`: "));
    }

    #[test]
    fn any_header_is_loaded_or_an_error_with_the_file(text in ".{0,200}", size in 0_u8..30) {
        let dir = directory(&[("model.safetensors", safetensors(&text, size))]);
        if let Err(refused) = open_and_take(&dir) {
            prop_assert!(refused.to_string().contains("model.safetensors`: "));
        }
    }

    #[test]
    fn a_changed_byte_is_loaded_or_an_error_with_the_directory(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut file = safetensors(&header().to_string(), 26);
        let at = at.index(file.len());
        file[at] = byte;
        let dir = directory(&[("model.safetensors", file)]);
        if let Err(refused) = open_and_take(&dir) {
            prop_assert!(refused.to_string().contains(&dir.path().display().to_string()));
        }
    }

    #[test]
    fn any_offsets_are_loaded_or_an_error_with_the_directory(
        places in prop::collection::vec((0_u64..30, 0_u64..30, prop::collection::vec(-1_i64..5, 0..3)), 1..4),
        size in 0_u8..30,
    ) {
        let entries = places.iter().enumerate();
        let header: serde_json::Map<_, _> =
            entries.map(|(at, (begin, end, shape))| (at.to_string(), entry("F16", shape, *begin, *end))).collect();
        let dir = single(&header.into(), size);
        if let Err(refused) = open_and_take(&dir) {
            prop_assert!(refused.to_string().contains(&dir.path().display().to_string()));
        }
    }

    #[test]
    fn any_index_is_an_error_with_the_directory(text in ".{0,200}") {
        let dir = directory(&[(INDEX, text.into_bytes())]);
        prop_assert!(refusal(&dir).contains(&dir.path().display().to_string()));
    }

    #[test]
    fn any_weight_map_is_an_error_with_the_directory(
        map in prop::collection::hash_map(".{0,20}", "[./a-z\\\\]{0,12}(\\.safetensors)?", 1..5),
    ) {
        let index = json!({"weight_map": map}).to_string();
        let dir = directory(&[(INDEX, index.into_bytes())]);
        prop_assert!(refusal(&dir).contains(&dir.path().display().to_string()));
    }
}
