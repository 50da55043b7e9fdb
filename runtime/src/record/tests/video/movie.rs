//! Reads the mp4 boxes of videos (ISO/IEC 14496-12).

use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns `(type, body)` of the boxes in `bytes`, without an incomplete last one.
pub(super) fn boxes(mut bytes: &[u8]) -> Vec<([u8; 4], &[u8])> {
    let mut found = Vec::new();
    while bytes.len() >= 8 {
        let (head, size) = match u32_at(bytes, 0) {
            1 => (
                16,
                (u32_at(bytes, 8) as usize) << 32 | u32_at(bytes, 12) as usize,
            ),
            size => (8, size as usize),
        };
        if !(head..=bytes.len()).contains(&size) {
            break;
        }
        found.push((bytes[4..8].try_into().unwrap(), &bytes[head..size]));
        bytes = &bytes[size..];
    }
    found
}

pub(super) fn inner<'a>(bytes: &'a [u8], path: &[&[u8; 4]]) -> &'a [u8] {
    path.iter().fold(bytes, |bytes, name| {
        boxes(bytes)
            .into_iter()
            .find(|(found, _)| found == *name)
            .unwrap()
            .1
    })
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Returns the number of images in the fragments of a file that is not closed.
pub(in crate::record::tests) fn frames_in_fragments(path: &Path) -> usize {
    let bytes = fs::read(path).unwrap();
    let moofs = boxes(&bytes)
        .into_iter()
        .filter(|(name, _)| name == b"moof");
    moofs
        .map(|(_, moof)| u32_at(inner(moof, &[b"traf", b"trun"]), 4) as usize)
        .sum()
}

/// A closed file, with all sample positions after the images.
pub(super) struct Movie {
    bytes: Vec<u8>,
}

impl Movie {
    pub(super) fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let names: Vec<_> = boxes(&bytes).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, [*b"ftyp", *b"mdat", *b"moov"], "{}", path.display());
        Self { bytes }
    }

    pub(super) fn media(&self) -> &[u8] {
        inner(&self.bytes, &[b"moov", b"trak", b"mdia"])
    }

    /// Returns the words of a table, without version and flags.
    pub(super) fn table(&self, name: &[u8; 4]) -> Vec<u32> {
        let body = inner(self.media(), &[b"minf", b"stbl", name]);
        body[4..]
            .chunks_exact(4)
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect()
    }

    /// Returns the numbers of the key frames, from 0.
    pub(super) fn keyframes(&self) -> Vec<u32> {
        self.table(b"stss")[1..]
            .iter()
            .map(|number| number - 1)
            .collect()
    }

    /// Checks that the positions lead to valid images, each a sequence of length-prefixed NAL
    /// units, and returns their number.
    pub(super) fn check_pictures(&self) -> usize {
        let sizes = &self.table(b"stsz")[2..];
        let starts = self.table(b"co64");
        let runs = self.table(b"stsc");
        let mut sizes = sizes.iter();
        let mut frames = 0;
        for (chunk, start) in starts[1..].chunks_exact(2).enumerate() {
            let run = runs[1..]
                .chunks_exact(3)
                .rfind(|run| run[0] as usize <= chunk + 1)
                .unwrap();
            let mut at = start[1] as usize;
            for size in sizes.by_ref().take(run[1] as usize) {
                let end = at + *size as usize;
                while at < end {
                    at += 4 + u32_at(&self.bytes, at) as usize;
                }
                assert_eq!(at, end);
                frames += 1;
            }
        }
        assert_eq!(sizes.next(), None);
        frames
    }
}

pub(in crate::record::tests) fn frames_of(path: &Path) -> usize {
    Movie::read(path).check_pictures()
}

/// Decodes a whole file with FFmpeg and returns the number of images.
pub(super) fn decoded(path: &Path) -> Option<usize> {
    let words =
        "-v error -count_frames -select_streams v -show_entries stream=nb_read_frames -of csv=p=0";
    let mut command = Command::new("ffprobe");
    let Ok(output) = command.args(words.split(' ')).arg(path).output() else {
        eprintln!("FFmpeg did not read the file: there is no ffprobe");
        return None;
    };
    let [said, found] = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && said.is_empty(), "{said}");
    Some(found.trim().parse().unwrap())
}
