//! An mp4 file (ISO/IEC 14496-12) that is playable after any interruption, and is finished in
//! place.
//!
//! ```text
//! while it grows   ftyp moov │ moof mdat │ moof mdat │ …    fragments, complete by themselves
//! closed           ftyp mdat(moov moof mdat moof mdat …) moov(sizes, key frames, positions)
//! ```
//!
//! To close a file, an index of all images is appended, and one write inside one page makes an
//! `mdat` of everything before it. So a player knows the duration and can seek, no byte is written
//! twice, and a killed process leaves the one form or the other. OBS Studio's Hybrid MP4 does the
//! same (plugins/obs-outputs/mp4-mux.c).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::record::RecordError;
use crate::record::video::h264::EncodedImage;

/// Ticks per image. The file's time scale is this times the frame rate, so that all times are
/// integers.
const TICKS: u32 = 1000;
/// The unit matrix of a header: 16.16 fixed point, the last column 2.30.
const MATRIX: [u32; 9] = [0x1_0000, 0, 0, 0, 0x1_0000, 0, 0, 0, 0x4000_0000];
/// Flags of a key frame, and of an image that depends on others (§8.8.3.1).
const SAMPLE_FLAGS: [u32; 2] = [0x0200_0000, 0x0101_0000];

/// A file that is being written.
pub(super) struct Mp4 {
    file: File,
    path: PathBuf,
    /// Bytes in the file.
    end: u64,
    pub(super) picture: Picture,
    /// The body of `stsd`.
    description: Vec<u8>,
    /// Size of each image in bytes.
    sizes: Vec<u32>,
    /// Numbers of the key frames, from 1.
    keyframes: Vec<u32>,
    fragments: Vec<Fragment>,
    /// Images that are not in the file yet, and their number.
    pending: (Vec<u8>, usize),
}

/// The images of one fragment.
#[derive(Clone, Copy, Debug)]
struct Fragment {
    /// Offset of the first image.
    start: u64,
    frames: u32,
}

/// Size and frame rate of the images.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picture {
    /// Width in pixels.
    pub(super) width: u32,
    /// Height in pixels.
    pub(super) height: u32,
    /// Images per second, at least 1.
    pub(super) fps: u32,
}

impl Mp4 {
    /// Creates a file and writes the header, which depends on the first sample. If there is one at
    /// `path`, it is replaced, or stays and this one is called `<stem>_part2.mp4`, ….
    pub(super) fn create(
        path: &Path,
        replaces: bool,
        picture: Picture,
        first: &EncodedImage,
    ) -> Result<Self, RecordError> {
        let created = match replaces {
            true => File::create(path).map(|file| (file, path.to_owned())),
            false => create_new(path),
        };
        let (file, path) = created.map_err(|err| RecordError::file(path, err))?;
        let mut mp4 = Self {
            file,
            path,
            end: 0,
            picture,
            description: description(picture, first),
            sizes: Vec::new(),
            keyframes: Vec::new(),
            fragments: Vec::new(),
            pending: (Vec::new(), 0),
        };
        let header = [file_type(), mp4.moov()].concat();
        if let Err(err) = mp4.write(&header) {
            // There is nothing to play yet.
            fs::remove_file(&mp4.path).map_err(|err| mp4.failed(err))?;
            return Err(mp4.failed(err));
        }
        Ok(mp4)
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of images so far.
    pub(super) fn frames(&self) -> u64 {
        self.sizes.len() as u64
    }

    /// Adds an image; a fragment is written to the file once a second.
    pub(super) fn push(&mut self, sample: &EncodedImage) -> Result<(), RecordError> {
        self.sizes.push(sample.bytes.len() as u32);
        if sample.keyframe {
            self.keyframes.push(self.sizes.len() as u32);
        }
        self.pending.0.extend(&sample.bytes);
        self.pending.1 += 1;
        match self.pending.1 >= self.picture.fps as usize {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes all images to the file, so that none is lost afterwards.
    pub(super) fn flush(&mut self) -> Result<(), RecordError> {
        let (images, frames) = std::mem::take(&mut self.pending);
        if frames == 0 {
            return Ok(());
        }
        let moof = self.moof(frames);
        let start = self.end + moof.len() as u64 + 8;
        let written = self.write(&[moof, boxed(b"mdat", &[&images])].concat());
        written.map_err(|err| self.failed(err))?;
        let frames = frames as u32;
        self.fragments.push(Fragment { start, frames });
        Ok(())
    }

    /// Writes the rest and finishes the file, as `name` in its folder if a name is given. Returns
    /// its path.
    pub(super) fn close(mut self, name: Option<&str>) -> Result<PathBuf, RecordError> {
        self.flush()?;
        if let Err(err) = self.finish() {
            let path = self.path.display();
            tracing::warn!(
                "`{path}` stays in fragments, of which some browsers do not show the duration: {err}"
            );
        }
        let Some(name) = name else {
            return Ok(self.path);
        };
        let to = self.path.with_file_name(name);
        fs::rename(&self.path, &to).map_err(|err| self.failed(err))?;
        Ok(to)
    }

    /// Deletes the file.
    pub(super) fn discard(self) -> Result<(), RecordError> {
        fs::remove_file(&self.path).map_err(|err| self.failed(err))
    }

    fn failed(&self, err: io::Error) -> RecordError {
        RecordError::file(&self.path, err)
    }

    /// Appends the index and makes an `mdat` of all that is between it and `ftyp`.
    fn finish(&mut self) -> io::Result<()> {
        let (from, to) = (file_type().len() as u64, self.end);
        self.write(&self.moov())?;
        self.file.sync_data()?;
        // A length of 1 means that the real length, of 64 bits, follows.
        let head = [&words(&[1]), &b"mdat"[..], &(to - from).to_be_bytes()].concat();
        self.file.write_all_at(&head, from)
    }

    /// Appends all bytes or, as far as the system allows, none.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(bytes, self.end);
        match written {
            Ok(()) => self.end += bytes.len() as u64,
            Err(_) => self.file.set_len(self.end)?,
        }
        written
    }

    /// Returns the head of a fragment with the last `frames` images.
    fn moof(&self, frames: usize) -> Vec<u8> {
        let first = self.sizes.len() - frames;
        let samples = self.sizes[first..].iter().zip(first as u32 + 1..);
        let samples = samples.flat_map(|(size, number)| {
            let needs_others = self.keyframes.binary_search(&number).is_err();
            [*size, SAMPLE_FLAGS[usize::from(needs_others)]]
        });
        let samples: Vec<u32> = samples.collect();
        let time = (first as u64 * u64::from(TICKS)).to_be_bytes();
        let sequence = self.fragments.len() as u32 + 1;
        // Offsets count from this box, and images have the same duration.
        let head = boxed(b"tfhd", &[&words(&[0x2_0008, 1, TICKS])]);
        let start = boxed(b"tfdt", &[&words(&[0x100_0000]), &time]);
        let run = |offset: u32| {
            let run = words(&[0x601, frames as u32, offset]);
            let run = boxed(b"trun", &[&run, &words(&samples)]);
            let traf = boxed(b"traf", &[&head, &start, &run]);
            boxed(b"moof", &[&full(b"mfhd", &[sequence]), &traf])
        };
        // The offset does not change the length, so the box is built twice.
        run(run(0).len() as u32 + 8)
    }

    /// Returns the header, with the images of all fragments; before the first it says that
    /// fragments follow.
    fn moov(&self) -> Vec<u8> {
        let Picture { width, height, fps } = self.picture;
        let ticks = self.frames() * u64::from(TICKS);
        // Headers of version 1: the times of creation and modification, and the duration, have 64
        // bits.
        let timed = |name: &[u8; 4], flags: u32, before: &[u32], after: &[u32]| {
            let times = words(&[0x100_0000 | flags, 0, 0, 0, 0]);
            let (before, after) = (words(before), words(after));
            boxed(name, &[&times, &before, &ticks.to_be_bytes(), &after])
        };
        let scale = [fps * TICKS];
        // Rate 1.0, no sound, and the number of the next track.
        let whole = [&[0x1_0000, 0, 0, 0][..], &MATRIX, &[0; 6], &[2]].concat();
        let shown = [&[0; 4][..], &MATRIX, &[width << 16, height << 16]].concat();
        // The language is `und`, three letters of five bits.
        let mdhd = timed(b"mdhd", 0, &scale, &[0x55c4_0000]);
        let handler = [&words(&[0, 0])[..], b"vide", &[0; 12], b"VideoHandler\0"];
        // The images are in this file.
        let url = boxed(b"url ", &[&words(&[1])]);
        let dinf = boxed(b"dinf", &[&boxed(b"dref", &[&words(&[0, 1]), &url])]);
        let vmhd = boxed(b"vmhd", &[&words(&[1, 0, 0])]);
        let minf = boxed(b"minf", &[&vmhd, &dinf, &self.table()]);
        let mdia = boxed(b"mdia", &[&mdhd, &boxed(b"hdlr", &handler), &minf]);
        let trak = boxed(b"trak", &[&timed(b"tkhd", 3, &[1, 0], &shown), &mdia]);
        let extends = match self.fragments.is_empty() {
            true => boxed(b"mvex", &[&full(b"trex", &[1, 1, 0, 0, 0])]),
            false => Vec::new(),
        };
        let mvhd = timed(b"mvhd", 0, &scale, &whole);
        boxed(b"moov", &[&mvhd, &trak, &extends])
    }

    /// Returns `stbl`: what the images are, their times, key frames, sizes and positions.
    fn table(&self) -> Vec<u8> {
        let frames = self.sizes.len() as u32;
        // First fragment, images in each, kind of image; an entry whenever the number changes.
        let mut runs = Vec::new();
        let mut before = 0;
        for (number, fragment) in (1..).zip(&self.fragments) {
            if fragment.frames != before {
                runs.extend([number, fragment.frames, 1]);
                before = fragment.frames;
            }
        }
        let times = if frames > 0 {
            &[1, frames, TICKS][..]
        } else {
            &[0]
        };
        let runs = [&[(runs.len() / 3) as u32], &runs[..]].concat();
        let keys = [&[self.keyframes.len() as u32], &self.keyframes[..]].concat();
        let sizes = [&[0, frames], &self.sizes[..]].concat();
        let fragments = self.fragments.iter();
        let starts = fragments.map(|fragment| fragment.start.to_be_bytes());
        let starts = starts.collect::<Vec<_>>().concat();
        let count = words(&[0, self.fragments.len() as u32]);
        let stsd = boxed(b"stsd", &[&self.description]);
        // An empty list would mean that no image is a key frame.
        let stss = if frames > 0 {
            full(b"stss", &keys)
        } else {
            Vec::new()
        };
        let [stts, stsc] = [full(b"stts", times), full(b"stsc", &runs)];
        let [stsz, co64] = [full(b"stsz", &sizes), boxed(b"co64", &[&count, &starts])];
        boxed(b"stbl", &[&stsd, &stts, &stss, &stsc, &stsz, &co64])
    }
}

fn create_new(path: &Path) -> io::Result<(File, PathBuf)> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let parts = (2..).map(|part| path.with_file_name(format!("{stem}_part{part}.mp4")));
    for path in std::iter::once(path.to_owned()).chain(parts) {
        match File::create_new(&path) {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            created => return Ok((created?, path)),
        }
    }
    unreachable!("there is always another part")
}

fn file_type() -> Vec<u8> {
    boxed(
        b"ftyp",
        &[b"isom", &[0, 0, 2, 0], b"isom", b"iso6", b"avc1", b"mp41"],
    )
}

/// Returns the body of `stsd`: one entry, H.264 with its parameter sets (ISO/IEC 14496-15).
fn description(picture: Picture, first: &EncodedImage) -> Vec<u8> {
    let sets = [&first.sps, &first.pps].map(|set| {
        let length = (set.len() as u16).to_be_bytes();
        [&length[..], set].concat()
    });
    // Profile, compatibility and level of the parameter set; lengths of four bytes; one set of each
    // kind.
    let profile = first.sps.get(1..4).unwrap_or_default();
    let parameters = [&[1], profile, &[0xff, 0xe1], &sets[0], &[1], &sets[1]].concat();
    let size = picture.width << 16 | picture.height & 0xffff;
    // Data reference 1, the size, 72 dots per inch, one image in each sample.
    let before = words(&[0, 1, 0, 0, 0, 0, size, 0x48_0000, 0x48_0000, 0]);
    // No name of a compressor; 24 bits of colour, and -1.
    let after = [&[0, 1][..], &[0; 32], &[0, 0x18, 0xff, 0xff]].concat();
    let entry = boxed(b"avc1", &[&before, &after, &boxed(b"avcC", &[&parameters])]);
    [words(&[0, 1]), entry].concat()
}

/// Returns a box of version 0 without flags that holds words.
fn full(name: &[u8; 4], body: &[u32]) -> Vec<u8> {
    boxed(name, &[&[0; 4], &words(body)])
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn boxed(name: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = Vec::with_capacity(8 + length);
    bytes.extend((8 + length as u32).to_be_bytes());
    bytes.extend(name);
    parts.iter().for_each(|part| bytes.extend(*part));
    bytes
}
