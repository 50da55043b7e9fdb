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

/// Creates a directory of lines: the name of a file, and its text; for a safetensors file the
/// number of its bytes of data, and its header.
fn described(lines: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for line in lines.lines() {
        let (name, text) = line.split_once(' ').unwrap_or((line, ""));
        let bytes = match text.split_once(' ') {
            Some((size, header)) if name.ends_with(".safetensors") => {
                safetensors(header, size.parse().unwrap())
            }
            _ => text.as_bytes().to_vec(),
        };
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

/// Opens any checkpoint and takes all tensors that it claims to have.
fn open_and_take(dir: &TempDir) -> Result<(), Refusal> {
    let mut weights = open(dir, Kind::Float)?;
    let checkpoint = weights.checkpoint.as_ref().unwrap();
    let found: Vec<_> = checkpoint.names().map(str::to_owned).collect();
    let shapes: Vec<_> = found
        .iter()
        .map(|name| checkpoint.find(name).unwrap().1.shape.iter())
        .map(|sides| sides.map(|&side| side as i64).collect::<Vec<_>>())
        .collect();
    found
        .iter()
        .zip(&shapes)
        .for_each(|(name, shape)| drop(weights.take(name, shape)));
    weights.finish().map(drop)
}

#[test]
fn files_that_contradict_themselves_or_each_other_are_refused() {
    let cases = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/weights/tests/refusals.txt"
    );
    rig::cases::check(cases, |lines| {
        let dir = described(lines);
        refusal(&dir).replace(dir.path().to_str().unwrap(), "DIR")
    });
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

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
}
