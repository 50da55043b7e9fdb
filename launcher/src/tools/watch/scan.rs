//! Looks at a folder of checkpoints. File systems of clusters report no changes, so it is looked at
//! again and again.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::tools::watch::complete;
use crate::tools::watch::machine::{Found, Scan};

/// Levels of subfolders whose files are compared.
const LEVELS: usize = 4;

/// Most files of a checkpoint that are compared.
const MOST_FILES: usize = 10_000;

/// Endings of checkpoints that are files.
const FILES: &[&str] = &["pt2", "pt", "pth", "ts", "ckpt", "safetensors"];

/// Looks at the folder, and remembers what is expensive to find out.
#[derive(Debug)]
pub(super) struct Scanner {
    folder: PathBuf,
    pattern: Option<String>,
    /// What was missing in a checkpoint, by its fingerprint.
    missing: BTreeMap<String, (u64, Option<String>)>,
}

impl Scanner {
    pub(super) fn new(folder: &Path, pattern: Option<String>) -> Self {
        Self {
            folder: folder.to_owned(),
            pattern,
            missing: BTreeMap::new(),
        }
    }

    /// Looks at the folder.
    ///
    /// # Errors
    /// Returns the errors of the file system about the folder itself.
    pub(super) fn scan(&mut self) -> io::Result<Scan> {
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
        self.missing.retain(|name, _| scan.contains_key(name));
        Ok(scan)
    }

    /// Returns the step of an entry, if it is a checkpoint.
    fn step(&self, name: &str, metadata: &Metadata) -> Option<u64> {
        let ending = Path::new(name)
            .extension()
            .and_then(|ending| ending.to_str());
        let is_meant = match &self.pattern {
            Some(pattern) => matches(pattern.as_bytes(), name.as_bytes()),
            None => metadata.is_dir() || ending.is_some_and(|ending| FILES.contains(&ending)),
        };
        let is_known = metadata.is_dir() || metadata.is_file();
        (is_meant && is_known && !is_temporary(name)).then(|| step_of(name))?
    }

    fn found(&mut self, name: &str, step: u64, metadata: &Metadata) -> Found {
        let path = self.folder.join(name);
        let fingerprint = fingerprint(&path, metadata);
        let known = self.missing.get(name).filter(|(of, _)| *of == fingerprint);
        let missing = match known {
            Some((_, missing)) => missing.clone(),
            None => complete::missing(&path),
        };
        self.missing
            .insert(name.to_owned(), (fingerprint, missing.clone()));
        Found {
            step,
            fingerprint,
            missing,
        }
    }
}

/// Returns whether a name is one under which trainers write before they rename: hidden,
/// `tmp-checkpoint-1000` (transformers), `….tmp`, `….partial`, `….incomplete`.
fn is_temporary(name: &str) -> bool {
    let name = name.to_lowercase();
    let ends = [".tmp", ".temp", ".partial", ".incomplete", ".part"];
    name.starts_with('.')
        || ["tmp-", "tmp_", "tmp."]
            .iter()
            .any(|start| name.starts_with(start))
        || ends.iter().any(|end| name.ends_with(end))
        || name.contains(".tmp-")
}

/// Returns the last number of a name, without the ending of a file: 2000 for
/// `epoch=3-step_2000.pt2`.
fn step_of(name: &str) -> Option<u64> {
    let path = Path::new(name);
    let ending = path.extension().and_then(|ending| ending.to_str());
    let stem = match ending {
        Some(ending) if FILES.contains(&ending) => path.file_stem()?.to_str()?,
        _ => name,
    };
    let mut numbers = stem.split(|letter: char| !letter.is_ascii_digit());
    numbers.rfind(|digits| !digits.is_empty())?.parse().ok()
}

/// Returns whether a name fits a pattern, in which `*` stands for any letters and `?` for one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // The place behind the last `*`, and how much of the name it stands for so far.
    let (mut at, mut from, mut back) = (0, 0, None);
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                back = Some((at, from));
            }
            Some(letter) if *letter == b'?' || *letter == name[from] => {
                at += 1;
                from += 1;
            }
            _ => match back {
                Some((behind, taken)) => {
                    back = Some((behind, taken + 1));
                    (at, from) = (behind, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
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

#[cfg(test)]
mod tests {
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
}
