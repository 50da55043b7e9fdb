//! Checks a video file: whether its boxes are complete, and whether it has as many frames as the
//! journal says (ISO/IEC 14496-12).
//!
//! ```text
//! while it grows   ftyp moov │ moof mdat │ moof mdat │ …      frames are counted in each moof
//! closed           ftyp moov(stsz) │ mdat                     frames are counted in moov
//! ```
//! Frames are not decoded.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use jobs::files;
use report::verify::{EpisodeFrames, Findings, episodes};

/// Largest table in bytes; ten hours of video have some megabytes.
const LARGEST_TABLE: u64 = 1 << 28;

/// Deepest nesting of boxes: `moov trak mdia minf stbl stsz`, with a margin.
const DEPTH: usize = 16;

/// Most boxes of a file; a closed one has a few dozen, a fragment has ten.
const MOST_BOXES: u32 = 1 << 20;

/// Boxes that contain other boxes, on the way to those that count frames.
const CONTAINERS: [&[u8; 4]; 7] = [
    b"moov", b"moof", b"trak", b"mdia", b"minf", b"stbl", b"traf",
];

/// The contents of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct BoxSizes {
    frames: u64,
    /// Bytes of the frames that `stsz` lists.
    listed: u64,
    /// Bytes of all `mdat`.
    media: u64,
    /// Bytes after the last complete box.
    cut: u64,
    has_header: bool,
    boxes: u32,
}

/// Compares a file with the episodes that it should contain.
pub(super) fn check(path: &Path, spans: &[EpisodeFrames]) -> Findings {
    let mut findings = Findings::default();
    let film = match read(path) {
        Ok(film) => film,
        Err(err) => {
            findings.wrong.push(format!("cannot be read: {err}"));
            return findings;
        }
    };
    if film.cut > 0 {
        // A killed process leaves a partial box after the last frame that counts.
        findings.notes.push(format!(
            "its last {} bytes are not a complete box",
            film.cut
        ));
    }
    if film.listed > film.media {
        findings.wrong.push(format!(
            "has {} bytes of pictures, {} are listed",
            film.media, film.listed
        ));
    }
    let beyond = |span: &&EpisodeFrames| span.end() > film.frames;
    let numbers: Vec<_> = spans
        .iter()
        .filter(beyond)
        .map(|span| span.episode)
        .collect();
    if !numbers.is_empty() {
        findings.wrong.push(format!(
            "has {} pictures: {} beyond its end",
            film.frames,
            episodes(numbers.iter().copied())
        ));
    }
    findings.wrong.extend(overlap(spans));
    let wanted = spans
        .iter()
        .fold(0_u64, |sum, span| sum.saturating_add(span.frames));
    if film.frames > wanted && numbers.is_empty() {
        findings.notes.push(format!(
            "has {} pictures, {wanted} of them of episodes that count",
            film.frames
        ));
    }
    findings
}

fn overlap(spans: &[EpisodeFrames]) -> Option<String> {
    let mut spans: Vec<_> = spans.iter().filter(|span| span.frames > 0).collect();
    spans.sort_by_key(|span| span.first);
    let pair = spans
        .windows(2)
        .find(|pair| pair[0].end() > pair[1].first)?;
    Some(format!(
        "episodes {} and {} have pictures in common",
        pair[0].episode, pair[1].episode
    ))
}

fn read(path: &Path) -> io::Result<BoxSizes> {
    let file = files::open(path)?;
    let end = file.metadata()?.len();
    let mut film = BoxSizes::default();
    film.cut = end - film.add(&file, 0, end, DEPTH)?;
    match film.has_header {
        true => Ok(film),
        false => Err(broken("it has no `moov`".to_owned())),
    }
}

impl BoxSizes {
    /// Adds the boxes from `at` to `end`, nested at most `depth` deep; returns the end of the last
    /// complete one.
    fn add(&mut self, file: &File, mut at: u64, end: u64, depth: usize) -> io::Result<u64> {
        let too_deep = || broken("its boxes lie too deep within each other".to_owned());
        let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
        while let Some((name, body, next)) = header(file, at, end)? {
            if at == 0 && name != *b"ftyp" {
                return Err(broken("it does not start like an mp4 file".to_owned()));
            }
            self.boxes += 1;
            if self.boxes > MOST_BOXES {
                return Err(broken(format!("it has more than {MOST_BOXES} boxes")));
            }
            self.has_header |= name == *b"moov";
            match &name {
                b"mdat" => self.media = self.media.saturating_add(next - body),
                // Version and flags, the size of all frames or 0, their number; then the size of
                // each.
                b"stsz" => {
                    let mut word = words(file, body, next)?;
                    let [_, one, many] = [word()?, word()?, word()?];
                    let mut bytes = u64::from(one) * u64::from(many);
                    for _ in (0..many).filter(|_| one == 0) {
                        bytes += u64::from(word()?);
                    }
                    self.list(many, bytes);
                }
                b"trun" => {
                    let mut word = words(file, body, next.min(body + 8))?;
                    let [_, many] = [word()?, word()?];
                    self.list(many, 0);
                }
                name if CONTAINERS.contains(&name) && self.add(file, body, next, depth)? < next => {
                    let name = name.escape_ascii();
                    return Err(broken(format!("its `{name}` is cut off")));
                }
                _ => {}
            }
            at = next;
        }
        Ok(at)
    }

    fn list(&mut self, frames: u32, bytes: u64) {
        self.frames = self.frames.saturating_add(u64::from(frames));
        self.listed = self.listed.saturating_add(bytes);
    }
}

/// Returns the name of the box at `at`, the start of its body and its end; `None` if `end` comes
/// before that.
fn header(file: &File, at: u64, end: u64) -> io::Result<Option<([u8; 4], u64, u64)>> {
    let mut bytes = [0; 16];
    let there = (end - at).min(16) as usize;
    if there < 8 {
        return Ok(None);
    }
    file.read_exact_at(&mut bytes[..there], at)?;
    let [a, b, c, d, name @ ..] = *bytes.first_chunk::<8>().unwrap_or(&[0; 8]);
    let long = bytes.last_chunk::<8>().filter(|_| there == 16);
    let (head, length) = match (u32::from_be_bytes([a, b, c, d]), long) {
        (0, _) => (8, end - at),
        (1, Some(long)) => (16, u64::from_be_bytes(*long)),
        (1, None) => return Ok(None),
        (length, _) => (8, u64::from(length)),
    };
    if length < head {
        return Err(broken(format!(
            "its box `{}` at byte {at} has a length of {length}",
            name.escape_ascii()
        )));
    }
    Ok((length <= end - at).then(|| (name, at + head, at + length)))
}

/// Returns a reader of the words of a table, one after the other.
fn words(mut file: &File, from: u64, to: u64) -> io::Result<impl FnMut() -> io::Result<u32>> {
    if to - from > LARGEST_TABLE {
        return Err(broken("a table of its pictures is too large".to_owned()));
    }
    file.seek(SeekFrom::Start(from))?;
    let mut table = BufReader::new(file.take(to - from));
    Ok(move || {
        let mut word = [0; 4];
        table
            .read_exact(&mut word)
            .map_err(|err| match err.kind() {
                ErrorKind::UnexpectedEof => broken("a table of its pictures is cut off".to_owned()),
                _ => err,
            })?;
        Ok(u32::from_be_bytes(word))
    })
}

fn broken(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn boxed(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 8).to_be_bytes()[..], name, body].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// Returns a closed file with frames of these sizes.
    fn closed(sizes: &[u32]) -> Vec<u8> {
        let table = words(&[&[0, 0, sizes.len() as u32], sizes].concat());
        let inner = ["stbl", "minf", "mdia", "trak", "moov"]
            .iter()
            .fold(boxed(b"stsz", &table), |inner, name| {
                boxed(name.as_bytes().first_chunk().unwrap(), &inner)
            });
        let media = vec![7; sizes.iter().sum::<u32>() as usize];
        [boxed(b"ftyp", b"isom"), inner, boxed(b"mdat", &media)].concat()
    }

    /// Returns a growing file with this number of frames in each fragment.
    fn growing(fragments: &[u32]) -> Vec<u8> {
        let fragment = |frames: &u32| {
            let moof = boxed(
                b"moof",
                &boxed(b"traf", &boxed(b"trun", &words(&[0, *frames]))),
            );
            [moof, boxed(b"mdat", &[7; 30])].concat()
        };
        let fragments: Vec<u8> = fragments.iter().flat_map(fragment).collect();
        [
            boxed(b"ftyp", b"isom"),
            boxed(b"moov", &boxed(b"mvhd", &[0; 8])),
            fragments,
        ]
        .concat()
    }

    fn checked(bytes: &[u8], spans: &[[u64; 3]]) -> Findings {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v.mp4");
        std::fs::write(&path, bytes).unwrap();
        let span = |[episode, first, frames]: &[u64; 3]| EpisodeFrames {
            episode: *episode,
            first: *first,
            frames: *frames,
        };
        check(&path, &spans.iter().map(span).collect::<Vec<_>>())
    }

    #[test]
    fn a_closed_and_a_growing_file_hold_their_pictures() {
        for file in [closed(&[10, 20, 30, 5, 5]), growing(&[2, 3])] {
            assert_eq!(checked(&file, &[[0, 0, 2], [1, 2, 3]]), Findings::default());
            let told = checked(&file, &[[0, 0, 2], [1, 2, 4]]).wrong;
            assert_eq!(told, ["has 5 pictures: episode 1 is beyond its end"]);
            let notes = checked(&file, &[[0, 0, 2]]).notes;
            assert_eq!(notes, ["has 5 pictures, 2 of them of episodes that count"]);
        }
    }

    #[test]
    fn episodes_share_no_pictures() {
        let told = checked(&growing(&[9]), &[[3, 0, 5], [1, 4, 5]]).wrong;
        assert_eq!(told, ["episodes 3 and 1 have pictures in common"]);
    }

    #[test]
    fn a_file_that_was_cut_loses_pictures() {
        let (whole, spans) = (closed(&[10, 20, 30]), [[0, 0, 3]]);
        let told = checked(&whole[..whole.len() - 1], &spans);
        assert_eq!(told.wrong, ["has 0 bytes of pictures, 60 are listed"]);
        assert!(
            checked(&whole[..40], &spans).wrong[0].starts_with("cannot be read: it has no `moov`")
        );
        let grown = growing(&[2, 3]);
        let told = checked(&grown[..grown.len() - 31], &[[0, 0, 2]]);
        assert!(
            told.wrong.is_empty() && told.notes[0].contains("are not a complete box"),
            "{told:?}"
        );
    }

    #[test]
    fn boxes_that_lie_within_each_other_without_end_are_refused() {
        let mut body = Vec::new();
        let depth = 200_000_u32;
        for level in (1..=depth).rev() {
            body.extend_from_slice(&(level * 8).to_be_bytes());
            body.extend_from_slice(b"trak");
        }
        let told = checked(
            &[boxed(b"ftyp", b"isom"), boxed(b"moov", &body)].concat(),
            &[],
        )
        .wrong;
        assert_eq!(
            told,
            ["cannot be read: its boxes lie too deep within each other"]
        );
    }

    #[test]
    fn a_file_of_boxes_without_end_is_refused() {
        let body = boxed(b"free", b"").repeat(MOST_BOXES as usize);
        let told = checked(
            &[boxed(b"ftyp", b"isom"), boxed(b"moov", &body)].concat(),
            &[],
        );
        assert_eq!(
            told.wrong,
            ["cannot be read: it has more than 1048576 boxes"]
        );
    }

    #[test]
    fn a_table_that_ends_before_its_last_size_is_refused() {
        for sizes in [&[0, 0, 3, 7, 7][..], &[0, 0], &[]] {
            let moov = boxed(b"moov", &boxed(b"stsz", &words(sizes)));
            let told = checked(&[boxed(b"ftyp", b"isom"), moov].concat(), &[]).wrong;
            assert_eq!(told, ["cannot be read: a table of its pictures is cut off"]);
        }
    }

    #[test]
    fn numbers_of_a_journal_beyond_any_film_are_told_and_not_added_up() {
        let told = checked(&growing(&[5]), &[[0, u64::MAX, u64::MAX], [1, 3, u64::MAX]]).wrong;
        assert_eq!(told[0], "has 5 pictures: episodes 0-1 are beyond its end");
    }

    #[test]
    fn what_is_no_video_is_said() {
        assert_eq!(checked(b"\x89HDF\r\n\x1a\n........", &[]).wrong.len(), 1);
        assert_eq!(
            checked(b"", &[]).wrong,
            ["cannot be read: it has no `moov`"]
        );
        assert!(
            check(Path::new("none.mp4"), &[]).wrong[0].starts_with("cannot be read: No such file")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_something(at in 0usize..200, byte: u8, cut in 0usize..200) {
            for mut file in [closed(&[10, 20, 30]), growing(&[2, 3])] {
                let at = at % file.len();
                file[at] = byte;
                file.truncate(file.len().min(cut.max(1)));
                checked(&file, &[[0, 0, 1]]);
            }
        }
    }
}
