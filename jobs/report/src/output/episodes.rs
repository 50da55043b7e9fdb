//! Writes `episodes.jsonl`: the episodes that count, one per line, ordered by job and number. A line
//! is copied from its journal, without the `type` field.

use std::io::{self, Write};

use jobs::journal::EPISODE;
use jobs::threads;

use crate::merged::record::EpisodeRecord;
use crate::merged::{Merged, episode};

/// Episodes that a thread copies at once: about 1 MiB.
const PART: usize = 1024;

impl Merged {
    /// Writes the episodes that count.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn write_episodes(&self, mut to: impl Write) -> io::Result<()> {
        let jobs = self.state.jobs.iter();
        let parts: Vec<_> = jobs.flat_map(|job| job.episodes.chunks(PART)).collect();
        let copied = |part: &&[EpisodeRecord], _: &mut Vec<u8>| -> io::Result<Vec<u8>> {
            let (mut reader, mut lines) = (self.journals.reader(), Vec::new());
            for record in *part {
                let line = reader.line(record.place)?;
                match line.strip_prefix(EPISODE) {
                    Some(rest) => {
                        lines.push(b'{');
                        lines.extend_from_slice(rest);
                    }
                    None => serde_json::to_writer(&mut lines, &episode(line)?)?,
                }
                lines.push(b'\n');
            }
            Ok(lines)
        };
        let mut written = Ok(());
        threads::in_order(&parts, copied, |_, lines| {
            if written.is_ok() {
                written = to.write_all(&lines);
            }
        })?;
        written
    }
}
