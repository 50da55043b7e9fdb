//! Which files a checkpoint must have. A training that was killed, or a copy that is slow, leaves
//! checkpoints that do not change and yet cannot be loaded.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use jobs::exported::Archive;
use jobs::files;
use serde_json::Value;

/// Folder of the policy within a checkpoint of LeRobot.
const LEROBOT: &str = "pretrained_model";

/// Maximum size of an index or of a header that is read, in bytes; those of large models have less
/// than one MiB.
const MAX_BYTES: u64 = 16 << 20;

/// Endings of files that torch writes as zip files.
const ZIPPED: &[&str] = &["pt2", "pt", "pth", "ts", "bin", "ckpt"];

/// First bytes of a zip file.
const ZIP: &[u8] = b"PK";

/// Returns what `model_path` means for a checkpoint: itself, or the policy in it.
pub(super) fn policy_path(checkpoint: &Path) -> PathBuf {
    let policy = checkpoint.join(LEROBOT);
    match policy.is_dir() {
        true => policy,
        false => checkpoint.to_owned(),
    }
}

/// Returns what a loader would miss; `None` if nothing is known to be missing.
pub(super) fn missing(checkpoint: &Path) -> Option<String> {
    let policy = policy_path(checkpoint);
    if !policy.is_dir() {
        return cut_off(&policy);
    }
    let names: BTreeSet<String> = names(&policy);
    if names.is_empty() {
        return Some("it has no files".to_owned());
    }
    let ends = |ending| {
        names
            .iter()
            .filter(move |name: &&String| name.ends_with(ending))
    };
    for index in ends(".index.json") {
        if let Some(missing) = missing_shard(&policy, index, &names) {
            return Some(missing);
        }
    }
    if let Some(cut) = names.iter().find_map(|name| cut_off(&policy.join(name))) {
        return Some(cut);
    }
    let is_model = ends(".safetensors")
        .chain(ends(".index.json"))
        .next()
        .is_some();
    let has_config = names.contains("config.json");
    (is_model && !has_config).then(|| "config.json is not there".to_owned())
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Returns the first file that an index names and that is not there.
fn missing_shard(folder: &Path, index: &str, names: &BTreeSet<String>) -> Option<String> {
    let unreadable = || Some(format!("{index} cannot be read"));
    let Ok(text) = files::read(&folder.join(index), MAX_BYTES) else {
        return unreadable();
    };
    let Ok(Value::Object(tree)) = serde_json::from_slice(&text) else {
        return unreadable();
    };
    let map = tree.get("weight_map").and_then(Value::as_object)?;
    let shards: BTreeSet<_> = map.values().filter_map(Value::as_str).collect();
    let lost = shards.into_iter().find(|shard| !names.contains(*shard))?;
    Some(format!("{index} names {lost}, which is not there"))
}

/// Returns whether a file of weights ends too early.
fn cut_off(path: &Path) -> Option<String> {
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .unwrap_or_default();
    let is_cut = match ending {
        "safetensors" => !is_whole_safetensors(path).unwrap_or(false),
        ending if ZIPPED.contains(&ending) => is_cut_zip(path).unwrap_or(false),
        _ => false,
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    is_cut.then(|| format!("{name} ends too early"))
}

/// Returns whether a file has all bytes that its header names: 8 bytes with the size of a JSON
/// object, which has the offsets of all tensors, and then these.
fn is_whole_safetensors(path: &Path) -> Option<bool> {
    let mut file = files::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    if length > MAX_BYTES || length > size.checked_sub(8)? {
        return Some(false);
    }
    let mut json = Vec::new();
    file.take(length).read_to_end(&mut json).ok()?;
    let header: Value = serde_json::from_slice(&json).ok()?;
    let end = |tensor: &Value| tensor.get("data_offsets")?.get(1)?.as_u64();
    let ends = header.as_object()?.values().filter_map(end);
    let bytes = ends.max().unwrap_or(0);
    Some(size - 8 - length >= bytes)
}

/// Returns whether a file begins as a zip file and does not end as one. Old files of torch are no
/// zip files.
fn is_cut_zip(path: &Path) -> Option<bool> {
    let mut file: File = files::open(path).ok()?;
    let mut first = [0; ZIP.len()];
    let is_empty = file.read_exact(&mut first).is_err();
    Some(is_empty || (first == ZIP && Archive::open(file).is_err()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use serde_json::json;

    /// Writes a file of one tensor of 16 bytes, of which `bytes` are there.
    fn safetensors(path: &Path, bytes: usize) {
        let header = json!({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}});
        let header = header.to_string();
        let size = (header.len() as u64).to_le_bytes();
        fs::write(
            path,
            [&size[..], header.as_bytes(), &vec![0; bytes]].concat(),
        )
        .unwrap();
    }

    #[test]
    fn a_sharded_checkpoint_needs_every_shard_whole_and_its_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let is = |wanted: Option<&str>| assert_eq!(missing(dir.path()).as_deref(), wanted);
        is(Some("it has no files"));
        let map = json!({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}});
        fs::write(at("model.safetensors.index.json"), &map.to_string()[..9]).unwrap();
        is(Some("model.safetensors.index.json cannot be read"));
        fs::write(at("model.safetensors.index.json"), map.to_string()).unwrap();
        safetensors(&at("1.safetensors"), 16);
        is(Some(
            "model.safetensors.index.json names 2.safetensors, which is not there",
        ));
        safetensors(&at("2.safetensors"), 15);
        is(Some("2.safetensors ends too early"));
        safetensors(&at("2.safetensors"), 16);
        is(Some("config.json is not there"));
        fs::write(at("config.json"), "{}").unwrap();
        is(None);
    }

    #[test]
    fn a_header_that_lies_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step_1.safetensors");
        for bytes in [
            &b""[..],
            &[0xff; 8],
            &[0xff; 64],
            b"\x05\0\0\0\0\0\0\0{\"a\"",
        ] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(
                missing(&path).as_deref(),
                Some("step_1.safetensors ends too early")
            );
        }
    }

    #[test]
    fn a_package_is_whole_if_it_ends_as_a_zip_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step_1.pt2");
        let empty = [&b"PK\x05\x06"[..], &[0; 18]].concat();
        for (bytes, is_whole) in [(&empty[..], true), (&empty[..20], false), (b"", false)] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(missing(&path).is_none(), is_whole, "{bytes:?}");
        }
        fs::write(dir.path().join("step_1.pth"), b"\x80\x02pickle").unwrap();
        assert_eq!(
            missing(&dir.path().join("step_1.pth")),
            None,
            "torch before 1.6"
        );
    }

    #[test]
    fn the_policy_of_lerobot_is_a_folder_of_the_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(policy_path(dir.path()), dir.path());
        fs::create_dir(dir.path().join("training_state")).unwrap();
        fs::create_dir(dir.path().join(LEROBOT)).unwrap();
        assert_eq!(policy_path(dir.path()), dir.path().join("pretrained_model"));
        assert_eq!(missing(dir.path()).as_deref(), Some("it has no files"));
    }
}
