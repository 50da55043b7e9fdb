//! Rewrites a finished video for browsers: the fragments, which keep a killed run playable, become
//! one file with all sample positions at its beginning. So a player knows the duration and can seek
//! without reading the whole file.
//!
//! ```text
//! during the run   ftyp moov │ moof mdat │ moof mdat │ …      playable after any interruption
//! after it         ftyp moov(sizes, keyframes, positions) │ mdat
//! ```
//!
//! No image is encoded again. The new file is written beside the old one as `<name>.tmp` and
//! replaces it by a rename, so that one of the two is complete at every moment. Memory: at most 12
//! bytes per image; the rest is copied in the kernel.

use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::record::video::boxes::{self, Fragment, TICKS};

/// Rewrites `path` as `to`. On an error `path` is unchanged.
pub(super) fn rewrite(path: &Path, to: &Path) -> io::Result<()> {
    let temporary = temporary(to);
    let written = write(path, &temporary).and_then(|()| fs::rename(&temporary, to));
    if written.is_err() {
        fs::remove_file(&temporary).ok();
        return written;
    }
    if path != to {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Rewrites the file of a killed process, unless it is already rewritten. Any other file stays
/// unchanged.
pub(super) fn mend(path: &Path) {
    fs::remove_file(temporary(path)).ok();
    if let Err(err) = rewrite(path, path) {
        tracing::debug!(%err, path = %path.display(), "not in fragments, or not to be rewritten");
    }
}

/// Returns the path of the temporary file.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

fn write(from: &Path, to: &Path) -> io::Result<()> {
    let mut old = File::open(from)?;
    let scan = boxes::scan(&mut old)?;
    let mut new = File::create(to)?;
    let header = header(&scan)?;
    new.write_all(&header)?;
    for fragment in &scan.fragments {
        old.seek(SeekFrom::Start(fragment.start))?;
        let copied = io::copy(&mut io::Read::take(&old, fragment.bytes), &mut new)?;
        if copied != fragment.bytes {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the video became shorter",
            ));
        }
    }
    new.sync_all()
}

/// Returns everything before the images: `ftyp`, `moov`, and the head of `mdat`.
fn header(scan: &boxes::Mp4Scan) -> io::Result<Vec<u8>> {
    let frames = scan.sizes.len() as u32;
    let ticks = u64::from(frames) * TICKS;
    let bytes: u64 = scan.fragments.iter().map(|fragment| fragment.bytes).sum();
    let mut head = boxed(
        b"ftyp",
        &[b"isom", &[0, 0, 2, 0], b"isom", b"iso2", b"avc1", b"mp41"],
    );
    // Positions do not change the length of `moov`, so it is built twice.
    let length = moov(scan, ticks, 0)?.len();
    let data = (head.len() + length + 16) as u64;
    head.extend(moov(scan, ticks, data)?);
    // A length of 1 means that the real length, of 64 bits, follows.
    head.extend(
        [
            &1_u32.to_be_bytes()[..],
            b"mdat",
            &(bytes + 16).to_be_bytes(),
        ]
        .concat(),
    );
    Ok(head)
}

/// Returns `moov` with one track; `data` is the offset of the first image.
fn moov(scan: &boxes::Mp4Scan, ticks: u64, data: u64) -> io::Result<Vec<u8>> {
    let timed = |name: &[u8; 4]| with_duration(scan.header(name)?, name, ticks);
    let media = |name: &[u8; 4]| Ok::<_, io::Error>(boxed(name, &[scan.header(name)?]));
    let table = boxed(
        b"stbl",
        &[
            &boxed(b"stsd", &[scan.header(b"stsd")?]),
            &full(b"stts", &[1, scan.sizes.len() as u32, TICKS as u32]),
            &full(b"stss", &counted(&scan.keyframes)),
            &full(b"stsc", &chunks(&scan.fragments)),
            &full(
                b"stsz",
                &[&[0, scan.sizes.len() as u32], &scan.sizes[..]].concat(),
            ),
            &positions(&scan.fragments, data),
        ],
    );
    let info = boxed(b"minf", &[&media(b"vmhd")?, &media(b"dinf")?, &table]);
    let mdia = boxed(b"mdia", &[&timed(b"mdhd")?, &media(b"hdlr")?, &info]);
    let track = boxed(b"trak", &[&timed(b"tkhd")?, &mdia]);
    Ok(boxed(b"moov", &[&timed(b"mvhd")?, &track]))
}

/// Converts a header of version 0 to version 1, which has times of 64 bits, with this duration
/// (ISO/IEC 14496-12 §8.2.2, §8.3.2, §8.4.2). The fields are: times of creation and modification,
/// then time scale or track number, in `tkhd` a reserved word, then the duration.
fn with_duration(body: &[u8], name: &[u8; 4], ticks: u64) -> io::Result<Vec<u8>> {
    let between = if name == b"tkhd" { 8 } else { 4 };
    let (Some(0), Some(flags), Some(kept), Some(rest)) = (
        body.first(),
        body.get(1..4),
        body.get(12..12 + between),
        body.get(12 + between + 4..),
    ) else {
        return Err(boxes::broken("a header of version 0"));
    };
    Ok(boxed(
        name,
        &[&[1], flags, &[0; 16], kept, &ticks.to_be_bytes(), rest],
    ))
}

/// Returns `stsc`: first fragment, images in each, kind of image; an entry whenever the number of
/// images changes.
fn chunks(fragments: &[Fragment]) -> Vec<u32> {
    let mut entries = Vec::new();
    let mut before = 0;
    for (number, fragment) in (1..).zip(fragments) {
        if fragment.frames != before {
            entries.extend([number, fragment.frames, 1]);
            before = fragment.frames;
        }
    }
    [vec![entries.len() as u32 / 3], entries].concat()
}

/// Returns `co64`: the offset of each fragment's images.
fn positions(fragments: &[Fragment], data: u64) -> Vec<u8> {
    let starts = fragments.iter().scan(data, |at, fragment| {
        let start = *at;
        *at += fragment.bytes;
        Some(start.to_be_bytes())
    });
    let starts: Vec<u8> = starts.flatten().collect();
    boxed(
        b"co64",
        &[&[0; 4], &(fragments.len() as u32).to_be_bytes(), &starts],
    )
}

fn counted(values: &[u32]) -> Vec<u32> {
    [&[values.len() as u32], values].concat()
}

/// Returns a box of version 0 without flags that holds words.
fn full(name: &[u8; 4], words: &[u32]) -> Vec<u8> {
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    boxed(name, &[&[0; 4], &words])
}

fn boxed(name: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = Vec::with_capacity(8 + length);
    bytes.extend((8 + length as u32).to_be_bytes());
    bytes.extend(name);
    parts.iter().for_each(|part| bytes.extend(*part));
    bytes
}
