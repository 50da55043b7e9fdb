//! Checks a video file: whether its boxes are complete, and whether it has as many frames as the
//! journal says (ISO/IEC 14496-12).
//!
//! ```text
//! while it grows   ftyp moov │ moof mdat │ moof mdat │ …      frames are counted in each moof
//! closed           ftyp moov(stsz) │ mdat                     frames are counted in moov
//! ```
//! Frames are not decoded.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use jobs::files;
use report::verify::{EpisodeFrames, Findings, episodes};

/// Largest `moov` or `moof` in bytes; ten hours of video have some megabytes.
const LARGEST_HEADER: u64 = 1 << 28;

/// Deepest nesting of boxes: `moov trak mdia minf stbl stsz`, with a margin.
const DEPTH: usize = 16;

/// Boxes that contain other boxes, on the way to those that count frames.
const CONTAINERS: [&[u8; 4]; 6] = [b"moov", b"trak", b"mdia", b"minf", b"stbl", b"traf"];

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

fn broken(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn read(path: &Path) -> io::Result<BoxSizes> {
    let file = files::open(path)?;
    let end = file.metadata()?.len();
    let (mut film, mut at, mut has_header) = (BoxSizes::default(), 0, false);
    while at < end {
        let Some((name, head, length)) = header(&file, at, end)? else {
            film.cut = end - at;
            break;
        };
        if at == 0 && name != *b"ftyp" {
            return Err(broken("it does not start like an mp4 file".to_owned()));
        }
        match &name {
            b"moov" | b"moof" => {
                has_header |= name == *b"moov";
                let length = Some(length - head).filter(|length| *length <= LARGEST_HEADER);
                let length = length
                    .ok_or_else(|| broken(format!("its `{}` is too large", name.escape_ascii())))?;
                let mut body = vec![0; length as usize];
                file.read_exact_at(&mut body, at + head)?;
                count(&body, &mut film, DEPTH)?;
            }
            b"mdat" => film.media = film.media.saturating_add(length - head),
            _ => {}
        }
        at += length;
    }
    if has_header {
        Ok(film)
    } else {
        Err(broken("it has no `moov`".to_owned()))
    }
}

/// Returns the name of the box at `at`, the size of its header and its total size; `None` if the
/// file ends before the box does.
fn header(file: &File, at: u64, end: u64) -> io::Result<Option<([u8; 4], u64, u64)>> {
    let mut bytes = [0; 16];
    let there = (end - at).min(16) as usize;
    if there < 8 {
        return Ok(None);
    }
    file.read_exact_at(&mut bytes[..there], at)?;
    let [a, b, c, d, name @ ..] = *bytes.first_chunk::<8>().unwrap_or(&[0; 8]);
    let long = bytes
        .last_chunk::<8>()
        .filter(|_| there == 16)
        .map(|long| u64::from_be_bytes(*long));
    let (head, length) = match (u32::from_be_bytes([a, b, c, d]), long) {
        (0, _) => (8, end - at),
        (1, Some(length)) => (16, length),
        (1, None) => return Ok(None),
        (length, _) => (8, u64::from(length)),
    };
    if length < head {
        return Err(broken(format!(
            "its box `{}` at byte {at} has a length of {length}",
            name.escape_ascii()
        )));
    }
    Ok(Some((name, head, length)).filter(|_| length <= end - at))
}

/// Adds the counts in the boxes of a `moov` or `moof`, nested at most `depth` deep.
fn count(mut body: &[u8], film: &mut BoxSizes, depth: usize) -> io::Result<()> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(broken(
            "its boxes lie too deep within each other".to_owned(),
        ));
    };

    while let Some((length, rest)) = body.split_first_chunk::<4>() {
        let (name, _) = rest
            .split_first_chunk::<4>()
            .ok_or_else(|| broken("a header ends within a box".to_owned()))?;
        let length = u32::from_be_bytes(*length) as usize;
        let inner = body
            .get(8..length)
            .ok_or_else(|| broken(format!("its `{}` is cut off", name.escape_ascii())))?;
        match name {
            // Version and flags, the size of all frames or 0, their number; then the size of each.
            b"stsz" => {
                let (one, many) = (word(inner, 4)?, word(inner, 8)?);
                film.frames = film.frames.saturating_add(u64::from(many));
                let listed = match one {
                    0 => (0..many as usize)
                        .map(|nth| word(inner, 12 + 4 * nth).map(u64::from))
                        .sum::<io::Result<u64>>()?,
                    one => u64::from(one) * u64::from(many),
                };
                film.listed = film.listed.saturating_add(listed);
            }
            b"trun" => film.frames = film.frames.saturating_add(u64::from(word(inner, 4)?)),
            name if CONTAINERS.contains(&name) => count(inner, film, depth)?,
            _ => {}
        }
        body = &body[length..];
    }
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> io::Result<u32> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map(|word| u32::from_be_bytes(*word))
        .ok_or_else(|| broken("a table of its pictures is cut off".to_owned()))
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
