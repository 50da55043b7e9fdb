//! The files below a folder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Lists the files below a folder that count, without hidden and compiled ones. Ends early with one
/// more than `most`.
pub(super) fn files_below(
    folder: &Path,
    most: usize,
    counts: impl Fn(&Path) -> bool,
) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    let mut known = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        // A link to a folder above would go on for ever.
        if !folder.canonicalize().is_ok_and(|real| known.insert(real)) {
            continue;
        }
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with('.') || name == "__pycache__" {
                continue;
            }
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() && counts(&path) {
                files.push(path);
            }
            if files.len() > most {
                return files;
            }
        }
    }
    files
}
