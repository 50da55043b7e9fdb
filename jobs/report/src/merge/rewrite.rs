//! Rewrites the lines of a journal for the merged folder: job positions are renumbered, and file
//! paths are made relative to it.
//!
//! Lines of episodes, of which there may be a million, are changed as bytes if they have the form
//! that [`jobs::journal`] writes. Inside a JSON string every quotation mark follows a backslash,
//! so `"file":"` can only be a key.

use std::collections::HashMap;
use std::path::Path;

use jobs::job::JobIndex;
use jobs::journal::{EPISODE, Line, Stamp};

use crate::merge::inputs::Input;
use crate::merge::paths::{from_to, normal};
use crate::merged::scan::EPISODE_START;

/// Keys of file paths in the line of an episode.
const FILES: [&[u8]; 2] = [b"\"file\":\"", b"\"episode_video\":\""];

/// Key of the job position.
const JOB: &[u8] = b"\"job_index\":";

/// How the lines of one run are changed.
pub(super) struct Rewrite<'a> {
    root: &'a Path,
    output: &'a Path,
    /// Text to insert between the quotation mark and a file path, escaped for JSON.
    prefix: Vec<u8>,
    positions: &'a HashMap<JobIndex, JobIndex>,
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(input: &'a Input, output: &'a Path) -> Self {
        let way = format!("{}/", from_to(output, input.root()));
        let text = serde_json::to_vec(&way).unwrap_or_default();
        let prefix = text[1..text.len() - 1].to_vec();
        Self {
            root: input.root(),
            output,
            prefix,
            positions: &input.positions,
        }
    }

    /// Appends a rewritten line with its line end. A line that cannot be parsed is copied
    /// unchanged.
    pub(super) fn line(&self, line: &[u8], to: &mut Vec<u8>) {
        let begin = to.len();
        let is_episode = line.starts_with(EPISODE);
        if !((is_episode || line.starts_with(EPISODE_START)) && self.bytes(line, to).is_some()) {
            to.truncate(begin);
            match serde_json::from_slice::<Line>(line) {
                Ok(parsed) => self.parsed(parsed, line, to),
                Err(_) => to.extend_from_slice(line),
            }
        }
        to.push(b'\n');
    }

    /// Rewrites a line as bytes. Returns `None` if the line does not have the expected form, or a
    /// file is outside the run folder.
    fn bytes(&self, line: &[u8], to: &mut Vec<u8>) -> Option<()> {
        let rest = self.job_bytes(line, to)?;
        let mut rest = rest;
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

    /// Copies the line up to and including the job position, and returns the rest.
    fn job_bytes<'l>(&self, line: &'l [u8], to: &mut Vec<u8>) -> Option<&'l [u8]> {
        if self.positions.is_empty() {
            return Some(line);
        }
        let at = find(line, JOB)? + JOB.len();
        let (before, number) = line.split_at(at);
        let digits = number.iter().position(|byte| !byte.is_ascii_digit())?;
        let index: usize = std::str::from_utf8(&number[..digits]).ok()?.parse().ok()?;
        to.extend_from_slice(before);
        to.extend_from_slice(
            self.positions
                .get(&JobIndex(index))?
                .0
                .to_string()
                .as_bytes(),
        );
        Some(&number[digits..])
    }

    fn parsed(&self, mut parsed: Line, line: &[u8], to: &mut Vec<u8>) {
        files(&mut parsed)
            .into_iter()
            .for_each(|file| self.file(file));
        let known = match &mut parsed {
            Line::Rank(_) | Line::RankEnd(_) | Line::PolicyFiles(_) | Line::Decision(_) => {
                return to.extend_from_slice(line);
            }
            Line::JobStart(start) => self.job(&mut start.job_index),
            Line::EpisodeStart(start) => self.job(&mut start.job_index),
            Line::EnvLost(lost) => self.job(&mut lost.job_index),
            Line::JobEnd(end) => self.job(&mut end.job_index),
            Line::Episode(episode) => self.job(&mut episode.job_index),
        };
        match serde_json::to_vec(&parsed) {
            Ok(mut text) if known => {
                Stamp::of(line).seal(&mut text);
                to.extend_from_slice(&text);
            }
            // The plan of the run has no such job: the line is as meaningless in the merged folder.
            _ => to.extend_from_slice(line),
        }
    }

    fn job(&self, index: &mut JobIndex) -> bool {
        if self.positions.is_empty() {
            return true;
        }
        let position = self.positions.get(index).copied();
        *index = position.unwrap_or(*index);
        position.is_some()
    }

    fn file(&self, file: &mut String) {
        if !file.starts_with('/') {
            *file = from_to(self.output, &normal(&self.root.join(&*file)));
        }
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
