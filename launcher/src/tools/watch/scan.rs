//! Looks at a folder of checkpoints. File systems of clusters report no changes, so it is looked at
//! again and again. A training that was killed, or a copy that is slow, leaves checkpoints that do
//! not change and yet cannot be loaded, so the files that one must have are looked at, too.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fit::checkpoint;
use jobs::exported::Archive;
use jobs::files;
use jobs::refusal::Refusal;

use crate::tools::watch::machine::{Found, Scan};

/// Levels of subfolders whose files are compared.
const LEVELS: usize = 4;

/// Most files of a checkpoint that are compared.
const MOST_FILES: usize = 10_000;

/// Endings of checkpoints that are files.
const FILES: &[&str] = &["pt2", "pt", "pth", "ts", "ckpt", "safetensors"];

/// Folder of the policy within a checkpoint of LeRobot.
const LEROBOT: &str = "pretrained_model";

/// Endings of files that torch writes as zip files.
const ZIPPED: &[&str] = &["pt2", "pt", "pth", "ts", "bin", "ckpt"];

/// First bytes of a zip file.
const ZIP: &[u8] = b"PK";

/// Looks at the folder, and remembers what is expensive to find out.
#[derive(Debug)]
pub(super) struct Scanner {
    pub(super) folder: PathBuf,
    pattern: Option<String>,
    /// The last look.
    last: Scan,
}

impl Scanner {
    pub(super) fn new(folder: &Path, pattern: Option<String>) -> Self {
        Self {
            folder: folder.to_owned(),
            pattern,
            last: Scan::new(),
        }
    }

    /// Looks at the folder.
    ///
    /// # Errors
    /// Refuses a folder that cannot be read.
    pub(super) fn scan(&mut self) -> Result<Scan, Refusal> {
        let scan = self.entries().map_err(|err| {
            let path = self.folder.display();
            let place = format_args!("cannot read the folder of the checkpoints, `{path}`");
            Refusal::at(place, err)
        })?;
        self.last.clone_from(&scan);
        Ok(scan)
    }

    fn entries(&self) -> io::Result<Scan> {
        let mut scan = Scan::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            // What disappears between two calls is not there.
            let Ok(metadata) = fs::metadata(entry.path()) else {
                continue;
            };
            if let Some(step) = self.step(&name, &metadata) {
                let found = self.found(&name, step, &metadata);
                scan.insert(name, found);
            }
        }
        Ok(scan)
    }

    /// Returns the step of an entry, if it is a checkpoint.
    fn step(&self, name: &str, metadata: &Metadata) -> Option<u64> {
        let is_meant = match &self.pattern {
            Some(pattern) => matches(pattern.as_bytes(), name.as_bytes()),
            None => metadata.is_dir() || ends_as_one_of(FILES, Path::new(name)),
        };
        let is_known = metadata.is_dir() || metadata.is_file();
        (is_meant && is_known && !is_temporary(name)).then(|| step_of(name))?
    }

    fn found(&self, name: &str, step: u64, metadata: &Metadata) -> Found {
        let path = self.folder.join(name);
        let fingerprint = fingerprint(&path, metadata);
        let known = self.last.get(name);
        let known = known.filter(|known| known.fingerprint == fingerprint);
        known.cloned().unwrap_or_else(|| Found {
            step,
            fingerprint,
            missing: missing(&path),
        })
    }
}

fn ends_as_one_of(endings: &[&str], path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| endings.contains(&ending))
}

/// Returns whether a name is one under which trainers write before they rename: hidden,
/// `tmp-checkpoint-1000` (transformers), `….tmp`, `….partial`, `….incomplete`.
fn is_temporary(name: &str) -> bool {
    let name = name.to_lowercase();
    let starts = [".", "tmp-", "tmp_", "tmp."];
    let ends = [".tmp", ".temp", ".partial", ".incomplete", ".part"];
    let starts_so = starts.iter().any(|start| name.starts_with(start));
    starts_so || ends.iter().any(|end| name.ends_with(end)) || name.contains(".tmp-")
}

/// Returns the last number of a name, without the ending of a file: 2000 for
/// `epoch=3-step_2000.pt2`.
fn step_of(name: &str) -> Option<u64> {
    let path = Path::new(name);
    let stem = match ends_as_one_of(FILES, path) {
        true => path.file_stem()?.to_str()?,
        false => name,
    };
    let mut numbers = stem.split(|letter: char| !letter.is_ascii_digit());
    numbers.rfind(|digits| !digits.is_empty())?.parse().ok()
}

/// Returns whether a name fits a pattern, in which `*` stands for any letters and `?` for one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Of each beginning of the name, whether the pattern fits it, as far as it was read.
    let mut fits = vec![false; name.len() + 1];
    fits[0] = true;
    for wanted in pattern {
        if *wanted == b'*' {
            let first = fits.iter().position(|fits| *fits).unwrap_or(fits.len());
            fits[first..].fill(true);
            continue;
        }
        fits.rotate_right(1);
        fits[0] = false;
        for (fits, letter) in fits[1..].iter_mut().zip(name) {
            *fits &= *wanted == b'?' || wanted == letter;
        }
    }
    fits[name.len()]
}

/// Returns a hash of names, sizes and modification times of all files.
fn fingerprint(path: &Path, metadata: &Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut left = MOST_FILES;
    add(path, metadata, LEVELS, &mut left, &mut hasher);
    hasher.finish()
}

fn add(path: &Path, of: &Metadata, levels: usize, left: &mut usize, to: &mut DefaultHasher) {
    (of.ino(), of.len(), of.mtime(), of.mtime_nsec()).hash(to);
    if !of.is_dir() || levels == 0 {
        return;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.take(*left).map(|entry| entry.path()).collect();
    *left -= paths.len();
    paths.sort();
    for path in paths {
        path.file_name().hash(to);
        if let Ok(metadata) = fs::metadata(&path) {
            add(&path, &metadata, levels - 1, left, to);
        }
    }
}

/// Returns what `model_path` means for a checkpoint: itself, or the policy in it.
pub(super) fn policy_path(checkpoint: &Path) -> PathBuf {
    let policy = checkpoint.join(LEROBOT);
    match policy.is_dir() {
        true => policy,
        false => checkpoint.to_owned(),
    }
}

/// Returns what a loader would miss; `None` if nothing is known to be missing.
fn missing(checkpoint: &Path) -> Option<String> {
    let policy = policy_path(checkpoint);
    if !policy.is_dir() {
        return cut_off(&policy);
    }
    let entries = fs::read_dir(&policy).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let names: BTreeSet<String> = names.collect();
    if names.is_empty() {
        return Some("it has no files".to_owned());
    }
    let mut indices = names.iter().filter(|name| name.ends_with(".index.json"));
    let lost = indices.find_map(|index| missing_shard(&policy, index, &names));
    let lost = lost.or_else(|| names.iter().find_map(|name| cut_off(&policy.join(name))));
    let is_weights =
        |name: &String| name.ends_with(".safetensors") || name.ends_with(".index.json");
    let lacks_config = names.iter().any(is_weights) && !names.contains("config.json");
    lost.or_else(|| lacks_config.then(|| "config.json is not there".to_owned()))
}

/// Returns the first file that an index names and that is not there.
fn missing_shard(folder: &Path, index: &str, names: &BTreeSet<String>) -> Option<String> {
    let Ok(shards) = checkpoint::shards(&folder.join(index)) else {
        return Some(format!("{index} cannot be read"));
    };
    let lost = shards.difference(names).next()?;
    Some(format!("{index} names {lost}, which is not there"))
}

/// Returns whether a file of weights ends too early.
fn cut_off(path: &Path) -> Option<String> {
    let is_cut = if ends_as_one_of(&["safetensors"], path) {
        !checkpoint::is_whole(path)
    } else {
        ends_as_one_of(ZIPPED, path) && is_cut_zip(path).unwrap_or(false)
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    is_cut.then(|| format!("{name} ends too early"))
}

/// Returns whether a file begins as a zip file and does not end as one. Old files of torch are no
/// zip files.
fn is_cut_zip(path: &Path) -> Option<bool> {
    let mut file = files::open(path).ok()?;
    let mut first = [0; ZIP.len()];
    let is_empty = file.read_exact(&mut first).is_err();
    Some(is_empty || (first == ZIP && Archive::open(file).is_err()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_step_is_the_last_number_of_a_name() {
        for (name, step) in [
            ("checkpoint-1000", Some(1000)),
            ("step_2000", Some(2000)),
            ("000100", Some(100)),
            ("global_step500", Some(500)),
            ("policy_v2_300.pt2", Some(300)),
            ("epoch=3-step=900.ckpt", Some(900)),
            ("last", None),
            ("run-99999999999999999999999", None),
        ] {
            assert_eq!(step_of(name), step, "{name}");
        }
    }

    #[test]
    fn patterns_have_stars_and_question_marks() {
        for (pattern, name, fits) in [
            ("checkpoint-*", "checkpoint-10", true),
            ("checkpoint-*", "checkpoint", false),
            ("*.pt2", "a.pt2", true),
            ("*.pt2", "a.pt", false),
            ("step_??", "step_10", true),
            ("step_??", "step_1", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xxaxxbxx", false),
            // Ten stars, for which there are more than 10^10 places.
            ("*a*a*a*a*a*a*a*a*a*ab", &"a".repeat(80), false),
            ("", "", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                fits,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn checkpoints_are_told_from_what_is_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["checkpoint-10", "tmp-checkpoint-20", "logs", ".step_3"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        for file in [
            "step_4.pt2",
            "step_5.pt2.tmp",
            "events.out.123",
            "notes_1.txt",
        ] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let names = |pattern: Option<&str>| {
            let mut scanner = Scanner::new(dir.path(), pattern.map(str::to_owned));
            let scan = scanner.scan().unwrap();
            scan.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(names(None), ["checkpoint-10", "step_4.pt2"]);
        assert_eq!(names(Some("*.txt")), ["notes_1.txt"]);
    }

    #[test]
    fn every_change_of_a_file_changes_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("step_1/deep");
        fs::create_dir_all(&inner).unwrap();
        let mut scanner = Scanner::new(dir.path(), None);
        let mut seen = Vec::new();
        for text in ["a", "ab", "abc"] {
            fs::write(inner.join("weights"), text).unwrap();
            seen.push(scanner.scan().unwrap()["step_1"].fingerprint);
        }
        assert_eq!(seen[2], scanner.scan().unwrap()["step_1"].fingerprint);
        seen.dedup();
        assert_eq!(seen.len(), 3);
        assert!(
            Scanner::new(Path::new("/no/such/folder"), None)
                .scan()
                .is_err()
        );
    }

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
