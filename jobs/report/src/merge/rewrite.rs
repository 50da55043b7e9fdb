//! Rewrites the lines of a journal for the merged folder: file paths are made relative to it.
//!
//! Lines of episodes, of which there may be a million, are changed as bytes if they have the form
//! that [`jobs::journal`] writes. Inside a JSON string every quotation mark follows a backslash,
//! so `"file":"` can only be a key.

use std::path::Path;

use jobs::journal::{EPISODE, Line, Stamp};

use crate::merge::Input;
use crate::merge::paths::{from_to, normal};
use crate::merged::scan::EPISODE_START;

/// Keys of file paths in the line of an episode.
const FILES: [&[u8]; 2] = [b"\"file\":\"", b"\"episode_video\":\""];

/// How the lines of one run are changed.
pub(super) struct Rewrite<'a> {
    root: &'a Path,
    output: &'a Path,
    /// Text to insert between the quotation mark and a file path, escaped for JSON.
    prefix: Vec<u8>,
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(input: &'a Input, output: &'a Path) -> Self {
        let way = format!("{}/", from_to(output, input.folder.root()));
        let text = serde_json::to_vec(&way).unwrap_or_default();
        let prefix = text[1..text.len() - 1].to_vec();
        Self {
            root: input.folder.root(),
            output,
            prefix,
        }
    }

    /// Appends a rewritten line with its line end. A line that names no file or cannot be parsed is
    /// copied unchanged.
    pub(super) fn line(&self, line: &[u8], to: &mut Vec<u8>) {
        let begin = to.len();
        if line.starts_with(EPISODE_START) {
            to.extend_from_slice(line);
        } else if !(line.starts_with(EPISODE) && self.bytes(line, to).is_some()) {
            to.truncate(begin);
            match self.parsed(line) {
                Some(text) => to.extend_from_slice(&text),
                None => to.extend_from_slice(line),
            }
        }
        to.push(b'\n');
    }

    /// Rewrites a line as bytes. Returns `None` if a file is outside the run folder.
    fn bytes(&self, mut rest: &[u8], to: &mut Vec<u8>) -> Option<()> {
        while let Some(at) = FILES
            .iter()
            .filter_map(|key| Some(find(rest, key)? + key.len()))
            .min()
        {
            let (before, file) = rest.split_at(at);
            to.extend_from_slice(before);
            match file {
                [b'/', ..] => {}
                [b'.', ..] => return None,
                _ => to.extend_from_slice(&self.prefix),
            }
            rest = file;
        }
        to.extend_from_slice(rest);
        Some(())
    }

    /// Rewrites a line that was parsed. Returns `None` if it names no file or is no line.
    fn parsed(&self, line: &[u8]) -> Option<Vec<u8>> {
        let mut parsed: Line = serde_json::from_slice(line).ok()?;
        let files = files(&mut parsed);
        if files.is_empty() {
            return None;
        }
        for file in files.into_iter().filter(|file| !file.starts_with('/')) {
            *file = from_to(self.output, &normal(&self.root.join(&*file)));
        }
        let mut text = serde_json::to_vec(&parsed).ok()?;
        Stamp::of(line).seal(&mut text);
        Some(text)
    }
}

/// Returns whether two lines are the same, except for the folders of the files that they name.
pub(super) fn is_same_line(a: &[u8], b: &[u8]) -> bool {
    let same = || Some(without_folders(a)? == without_folders(b)?);
    a == b || same().unwrap_or(false)
}

fn without_folders(line: &[u8]) -> Option<Vec<u8>> {
    let mut parsed: Line = serde_json::from_slice(line).ok()?;
    for file in files(&mut parsed) {
        let name = file.rfind('/').map_or(0, |at| at + 1);
        file.drain(..name);
    }
    let mut text = serde_json::to_vec(&parsed).ok()?;
    Stamp::of(line).seal(&mut text);
    Some(text)
}

/// Returns the paths in a line.
fn files(line: &mut Line) -> Vec<&mut String> {
    match line {
        Line::JobEnd(end) => end.log.iter_mut().collect(),
        Line::Episode(episode) => {
            let dataset = episode.dataset.as_mut().map(|demo| &mut demo.file);
            let video = episode.video.as_mut().map(|video| &mut video.file);
            dataset
                .into_iter()
                .chain(video)
                .chain(episode.episode_video.as_mut())
                .collect()
        }
        _ => Vec::new(),
    }
}

fn find(text: &[u8], key: &[u8]) -> Option<usize> {
    text.windows(key.len()).position(|window| window == key)
}
