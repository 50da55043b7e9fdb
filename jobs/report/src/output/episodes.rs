//! Writes `episodes.jsonl`: the episodes that count, one per line, ordered by job and number.
//!
//! A line is copied from its journal, without the `type` field. The lengths are known beforehand,
//! so several threads write, each at the offset of its jobs.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use jobs::threads;

use crate::journals::reader::LineReader;
use crate::merged::record::EpisodeRecord;
use crate::merged::scan::EPISODE;
use crate::merged::{Merged, episode};

/// Bytes that are written at once, unless one job has more.
const PART: u64 = 1 << 20;

/// A range of jobs whose episodes are adjacent in the file.
struct JobRange {
    jobs: Range<usize>,
    at: u64,
}

impl Merged<'_> {
    /// Writes the episodes that count into an empty file.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn write_episodes(&self, to: &File) -> io::Result<()> {
        let write = |part: &JobRange, buffer: &mut Vec<u8>| {
            let mut reader = self.journals.reader();
            buffer.clear();
            for record in self.state.jobs[part.jobs.clone()]
                .iter()
                .flat_map(|job| &job.episodes)
            {
                copy(record, &mut reader, buffer)?;
            }
            to.write_all_at(buffer, part.at)
        };
        threads::in_order(&self.parts()?, write, |_, ()| {})
    }

    fn parts(&self) -> io::Result<Vec<JobRange>> {
        let mut reader = self.journals.reader();
        let (mut parts, mut first, mut begin, mut end) = (Vec::new(), 0, 0, 0);
        for (index, job) in self.state.jobs.iter().enumerate() {
            for record in &job.episodes {
                end += len(record, &mut reader)?;
            }
            if end - begin >= PART || index + 1 == self.state.jobs.len() {
                parts.push(JobRange {
                    jobs: first..index + 1,
                    at: begin,
                });
                (first, begin) = (index + 1, end);
            }
        }
        Ok(parts)
    }
}

/// Returns the bytes of a line, including its line end.
fn len(record: &EpisodeRecord, reader: &mut LineReader) -> io::Result<u64> {
    if record.is_ours {
        return Ok(u64::from(record.place.len) - EPISODE.len() as u64 + 2);
    }
    let mut line = Vec::new();
    copy(record, reader, &mut line)?;
    Ok(line.len() as u64)
}

fn copy(record: &EpisodeRecord, reader: &mut LineReader, to: &mut Vec<u8>) -> io::Result<()> {
    let line = reader.line(record.place)?;
    match line.strip_prefix(EPISODE) {
        Some(rest) if record.is_ours => {
            to.push(b'{');
            to.extend_from_slice(rest);
        }
        _ => serde_json::to_writer(&mut *to, &episode(line)?)?,
    }
    to.push(b'\n');
    Ok(())
}
