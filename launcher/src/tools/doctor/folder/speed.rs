//! Measures how fast a file system writes.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::time::Duration;

use jobs::bytes::ByteSize;

use crate::tools::doctor::check::now;
use crate::tools::doctor::diagnosis::Diagnosis;

/// Bytes that are written at once, and synced: a slow disk is noticed soon.
const PIECE: usize = 4 << 20;

/// Most bytes that are written.
const MOST: u64 = 64 << 20;

/// Time after which no further piece is written.
const ENOUGH: Duration = Duration::from_millis(1500);

/// Bytes of a journal line, about.
const LINE: usize = 512;

/// Number of synced lines.
const LINES: usize = 7;

/// Below this, videos and datasets hold ranks up, in bytes per second.
const SLOW_BYTES: f64 = 20e6;

/// A journal is synced after each episode, which waits for it.
const SLOW_SYNC: Duration = Duration::from_millis(200);

/// Measured speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DiskSpeed {
    /// Bytes that were written and synced.
    bytes: u64,
    bytes_per_s: f64,
    /// Median time to append a line and sync it.
    sync: Duration,
}

impl DiskSpeed {
    /// Writes to an empty file, and empties it.
    ///
    /// # Errors
    /// Returns the error of the file system.
    pub(super) fn measure(mut file: &File) -> io::Result<Self> {
        let mut piece = noise(PIECE);
        let mut bytes = 0;
        let start = now();
        while bytes < MOST && start.elapsed() < ENOUGH {
            // No piece equals another one, for file systems that store such pieces once.
            piece[..8].copy_from_slice(&bytes.to_ne_bytes());
            file.write_all(&piece)?;
            file.sync_data()?;
            bytes += PIECE as u64;
        }
        let bytes_per_s = bytes as f64 / start.elapsed().as_secs_f64().max(1e-9);

        let mut times = Vec::new();
        for _ in 0..LINES {
            let start = now();
            file.write_all(&piece[..LINE])?;
            file.sync_data()?;
            times.push(start.elapsed());
        }
        times.sort();
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Self {
            bytes,
            bytes_per_s,
            sync: times[LINES / 2],
        })
    }
}

/// Returns bytes that do not compress (xorshift64).
fn noise(length: usize) -> Vec<u8> {
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub(super) fn judged(measured: io::Result<DiskSpeed>) -> Diagnosis {
    let name = "write speed";
    let speed = match measured {
        Ok(speed) => speed,
        Err(err) => {
            let found = format!("a test file cannot be written: {err}");
            let remedy = "look at quotas and the file system, or choose another --output";
            return Diagnosis::failed(name, found, remedy);
        }
    };
    let sync_ms = speed.sync.as_secs_f64() * 1e3;
    let found = format!(
        "{:.0} MB/s ({} synced), a journal line in {sync_ms:.1} ms",
        speed.bytes_per_s / 1e6,
        ByteSize(speed.bytes)
    );
    if speed.bytes_per_s < SLOW_BYTES || speed.sync > SLOW_SYNC {
        let remedy = "choose a local disk with --output and copy the results, or record less \
                      (--no-video)";
        return Diagnosis::warning(name, found, remedy);
    }
    Diagnosis::ok(name, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::doctor::diagnosis::Health;

    #[test]
    fn a_file_is_measured_and_emptied() {
        let file = tempfile::tempfile().unwrap();
        let speed = DiskSpeed::measure(&file).unwrap();
        assert!(speed.bytes >= PIECE as u64 && speed.bytes_per_s > 0.0);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn slow_writes_and_slow_syncs_are_warnings_and_an_error_is_a_failure() {
        let judged_at = |bytes_per_s, sync_ms| {
            judged(Ok(DiskSpeed {
                bytes: MOST,
                bytes_per_s,
                sync: Duration::from_millis(sync_ms),
            }))
        };
        let fast = judged_at(500e6, 3);
        assert_eq!(fast.health, Health::Ok);
        let told = "500 MB/s (64 MiB synced), a journal line in 3.0 ms";
        assert_eq!(fast.found, told);
        assert_eq!(judged_at(5e6, 3).health, Health::Warning);
        assert_eq!(judged_at(500e6, 900).health, Health::Warning);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(judged(Err(full)).health, Health::Failed);
    }

    #[test]
    fn noise_does_not_repeat() {
        let bytes = noise(20);
        assert_eq!(bytes.len(), 20);
        assert_ne!(bytes[..8], bytes[8..16]);
    }
}
