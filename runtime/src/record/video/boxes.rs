//! Parses the fragmented mp4 files that the recorder writes (ISO/IEC 14496-12).

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

/// Ticks per image. The file's time scale is this times the frame rate, so that all times are
/// integers.
pub(super) const TICKS: u64 = 1000;
/// Maximum bytes of a `moov` or `moof`; that of a second of video has some hundred.
const LARGEST_HEADER: u64 = 1 << 24;
/// Flag of an image that depends on others (§8.8.3.1, `sample_is_non_sync_sample`).
const NEEDS_OTHERS: u32 = 0x1_0000;

/// The images of one `moof` and its `mdat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Offset of the first image.
    pub(super) start: u64,
    /// Bytes of all its images.
    pub(super) bytes: u64,
    /// Number of images.
    pub(super) frames: u32,
}

/// All complete fragments of a file.
#[derive(Debug, Default)]
pub(super) struct Mp4Scan {
    moov: Vec<u8>,
    /// Fragments in order.
    pub(super) fragments: Vec<Fragment>,
    /// Size of each image in bytes.
    pub(super) sizes: Vec<u32>,
    /// Numbers of the key frames, from 1.
    pub(super) keyframes: Vec<u32>,
}

impl Mp4Scan {
    /// Returns the body of the first box of this name inside `moov`, at any depth.
    pub(super) fn header(&self, name: &[u8; 4]) -> io::Result<&[u8]> {
        find(&self.moov, name).ok_or_else(|| broken(&format!("a `{}`", name.escape_ascii())))
    }

    fn add(&mut self, moof: &[u8], start: u64, room: u64) -> io::Result<()> {
        let run = find(moof, b"trun").ok_or_else(|| broken("a `trun`"))?;
        let mut words = run
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| u32::from_be_bytes(*word));
        // Version and flags as muxide writes them: duration, size, flags and time offset of each
        // image.
        let (Some(0x0100_0f01), Some(frames), Some(_)) = (words.next(), words.next(), words.next())
        else {
            return Err(broken("a `trun` with duration, size, flags and offset"));
        };
        let entries: Vec<u32> = words.collect();
        let entries = entries.as_chunks::<4>().0;
        if entries.len() != frames as usize {
            return Err(broken("an entry for each picture"));
        }
        let bytes = entries.iter().map(|entry| u64::from(entry[1])).sum();
        if bytes > room {
            return Err(broken("an `mdat` with all pictures"));
        }
        for [_, size, flags, _] in entries {
            self.sizes.push(*size);
            if flags & NEEDS_OTHERS == 0 {
                self.keyframes.push(self.sizes.len() as u32);
            }
        }
        self.fragments.push(Fragment {
            start,
            bytes,
            frames,
        });
        Ok(())
    }
}

/// Reads all fragments up to the end, or to the first incomplete box, as after a kill.
pub(super) fn scan(file: &mut File) -> io::Result<Mp4Scan> {
    let end = file.seek(SeekFrom::End(0))?;
    let (mut at, mut scan, mut moof) = (0, Mp4Scan::default(), None);
    while at + 8 <= end {
        let mut head = [0; 8];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut head)?;
        let [a, b, c, d, name @ ..] = head;
        let length = u64::from(u32::from_be_bytes([a, b, c, d]));
        if length < 8 || at + length > end {
            break;
        }
        match &name {
            b"moov" => scan.moov = body(file, length)?,
            b"moof" => moof = Some(body(file, length)?),
            b"mdat" => {
                if let Some(moof) = moof.take() {
                    scan.add(&moof, at + 8, length - 8)?;
                }
            }
            _ => {}
        }
        at += length;
    }
    if scan.sizes.is_empty() {
        return Err(broken("a picture"));
    }
    Ok(scan)
}

/// Creates the error that the file lacks a required part.
pub(super) fn broken(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("expected {what} in the video"),
    )
}

fn body(file: &mut File, length: u64) -> io::Result<Vec<u8>> {
    if length > LARGEST_HEADER {
        return Err(broken("a header of less than 16 MiB"));
    }
    let mut bytes = vec![0; length as usize - 8];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Returns the body of the first box of this name in `bytes` or in nested boxes.
fn find<'a>(mut bytes: &'a [u8], name: &[u8; 4]) -> Option<&'a [u8]> {
    while let Some(([a, b, c, d, found @ ..], _)) = bytes.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let body = bytes.get(8..length)?;
        let inside = match found {
            _ if found == name => Some(body),
            b"trak" | b"mdia" | b"minf" | b"stbl" | b"traf" => find(body, name),
            _ => None,
        };
        if inside.is_some() {
            return inside;
        }
        bytes = &bytes[length..];
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_file_without_pictures_is_refused() {
        let err = scan(&mut file_of(b"\0\0\0\x08free")).unwrap_err();
        assert_eq!(err.to_string(), "expected a picture in the video");
    }

    proptest! {
        #[test]
        fn any_bytes_are_scanned_or_refused_without_a_panic(
            body in proptest::collection::vec(any::<u8>(), 0..200), length in 0..220_u32, moof in any::<bool>(),
        ) {
            let name = if moof { b"moof" } else { b"mdat" };
            let bytes = [&length.to_be_bytes()[..], name, &body, &body].concat();
            let _ = scan(&mut file_of(&bytes));
            let _ = find(&bytes, b"trun");
        }
    }
}
