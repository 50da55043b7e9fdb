//! Rewrites the lines of a journal for the merged folder: file paths are made relative to it. All
//! else stays as it is.

use std::path::Path;

use serde_json::Value;

use crate::merge::Input;
use crate::merge::paths::{from_to, normal};
use crate::merged::scan::EPISODE_START;

/// How the lines of one run are changed.
pub(super) struct Rewrite<'a> {
    root: &'a Path,
    output: &'a Path,
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(input: &'a Input, output: &'a Path) -> Self {
        let root = input.folder.root();
        Self { root, output }
    }

    /// Appends a rewritten line with its line end. A line that names no file or cannot be parsed is
    /// copied unchanged.
    pub(super) fn line(&self, line: &[u8], to: &mut Vec<u8>) {
        let moved = |file: &str| match file.starts_with('/') {
            true => file.to_owned(),
            false => from_to(self.output, &normal(&self.root.join(file))),
        };
        match with_files(line, moved) {
            Some(line) => to.extend_from_slice(line.to_string().as_bytes()),
            None => to.extend_from_slice(line),
        }
        to.push(b'\n');
    }
}

/// Returns whether two lines are the same, except for the folders of the files that they name.
pub(super) fn is_same_line(a: &[u8], b: &[u8]) -> bool {
    let without_folders = |line| {
        with_files(line, |file| {
            file[file.rfind('/').map_or(0, |at| at + 1)..].to_owned()
        })
    };
    let same = || Some(without_folders(a)? == without_folders(b)?);
    a == b || same().unwrap_or(false)
}

/// Returns a line with each of its files changed; `None` if it names no file or is no line.
fn with_files(line: &[u8], change: impl Fn(&str) -> String) -> Option<Value> {
    // Half of all lines.
    if line.starts_with(EPISODE_START) {
        return None;
    }
    let mut line: Value = serde_json::from_slice(line).ok()?;
    let files = match line.get("type")?.as_str()? {
        "episode" => &["/dataset/file", "/video/file", "/episode_video"][..],
        "job_end" => &["/log"],
        _ => return None,
    };
    let mut names_any = false;
    for place in files {
        if let Some(Value::String(file)) = line.pointer_mut(place) {
            *file = change(file);
            names_any = true;
        }
    }
    names_any.then_some(line)
}
