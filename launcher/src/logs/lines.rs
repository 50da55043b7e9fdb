//! The lines of a log file: splits what was read into lines, and finds the last ones.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Bytes that are read of a file at a time. A longer line is not kept in memory, so that a rank
/// that never ends a line uses no more than this.
pub const CHUNK: usize = 64 << 10;

/// Number of bytes in which the last lines are looked for.
const WINDOW: u64 = 16 << 10;

/// One line, without its line end.
#[derive(Clone, Debug)]
pub enum LogLine<'a> {
    /// The bytes of the line.
    Short(&'a [u8]),
    /// The place in its file of a line that is longer than a chunk.
    Long(&'a File, Range<u64>),
}

/// Splits a log file, UTF-8 or not, into lines.
///
/// A line ends at `\n`, `\r\n` or `\r`, as in torchrun, so every step of a progress bar is a line.
/// An empty line that was ended by a single `\r` is dropped, because progress bars begin with one.
#[derive(Debug)]
pub struct Lines {
    file: File,
    /// Position in the file at which the unfinished line begins.
    start: u64,
    /// Number of its bytes that have been read in whole chunks and contain no line end.
    searched: u64,
    /// Whether the last line end was a `\r`, so that a `\n` right after it ends no further line.
    after_return: bool,
}

impl Lines {
    /// Returns the lines from the beginning of the file.
    pub fn new(file: File) -> Lines {
        Lines {
            file,
            start: 0,
            searched: 0,
            after_return: false,
        }
    }

    /// Reads the next bytes into `chunk`, and calls `give` for each line that they end; if the file
    /// `is_over`, for an unfinished line, too. Returns whether there may be more lines.
    pub fn read(
        &mut self,
        chunk: &mut [u8],
        is_over: bool,
        mut give: impl FnMut(LogLine<'_>),
    ) -> bool {
        let position = self.start + self.searched;
        // A read error is treated as no new data.
        let length = self.file.read_at(chunk, position).unwrap_or(0);
        let (mut rest, mut at) = (&chunk[..length], position);
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let is_empty = self.start == at + end as u64;
            let follows_return = self.after_return && is_empty;
            match rest[end] {
                // The second half of an end, or the beginning of a progress bar.
                b'\n' if follows_return => {}
                b'\r' if is_empty => {}
                _ => give(self.line(&rest[..end], at)),
            }
            self.after_return = rest[end] == b'\r' && (!is_empty || follows_return);
            rest = &rest[end + 1..];
            at += end as u64 + 1;
            (self.start, self.searched) = (at, 0);
        }

        let is_within_a_line = length == chunk.len() && at == position;
        if is_within_a_line {
            self.searched += length as u64;
        } else if is_over && self.start < at + rest.len() as u64 {
            give(self.line(rest, at));
        }
        is_within_a_line || at > position
    }

    /// Returns the line that ends with these bytes, which were read `at` a position.
    fn line<'a>(&'a self, bytes: &'a [u8], at: u64) -> LogLine<'a> {
        match self.searched {
            0 => LogLine::Short(bytes),
            _ => LogLine::Long(&self.file, self.start..at + bytes.len() as u64),
        }
    }
}

impl LogLine<'_> {
    /// Returns the number of its bytes.
    pub fn length(&self) -> usize {
        match self {
            LogLine::Short(line) => line.len(),
            LogLine::Long(_, place) => {
                usize::try_from(place.end - place.start).unwrap_or(usize::MAX)
            }
        }
    }

    /// Writes the line.
    ///
    /// # Errors
    /// Returns the first error of `to`.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            LogLine::Short(line) => to.write_all(line),
            LogLine::Long(file, place) => {
                parts(file, place, 0).try_for_each(|part| to.write_all(&part))
            }
        }
    }

    /// Returns whether the line contains `wanted`.
    pub fn contains(&self, wanted: &[u8]) -> bool {
        let is_in = |line: &[u8]| {
            wanted.is_empty() || line.windows(wanted.len()).any(|window| window == wanted)
        };
        match self {
            LogLine::Short(line) => is_in(line),
            LogLine::Long(file, place) => parts(file, place, wanted.len()).any(|part| is_in(&part)),
        }
    }
}

/// Reads a long line again, in parts which overlap by so many bytes. Bytes that cannot be read any
/// more, because the rank has truncated its file, are left out.
fn parts(file: &File, place: &Range<u64>, overlap: usize) -> impl Iterator<Item = Vec<u8>> {
    let end = place.end;
    place.clone().step_by(CHUNK).map(move |at| {
        let wanted = usize::try_from(end - at).unwrap_or(CHUNK);
        let mut part = vec![0; wanted.min(CHUNK + overlap)];
        let length = file.read_at(&mut part, at).unwrap_or(0);
        part.truncate(length);
        part
    })
}

/// Returns up to `count` of the last lines of a file, without a line that begins before the last
/// 16 KiB. Invalid UTF-8 is replaced.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn last_lines(path: &Path, count: usize) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(WINDOW);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(WINDOW).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let whole = match text.split_once('\n') {
        Some((_, whole)) if start > 0 => whole,
        _ => &text,
    };
    let lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    Ok(lines[lines.len().saturating_sub(count)..].to_vec())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the lines of a file that is written in these pieces, and read after each.
    fn cut(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut writer = tempfile::NamedTempFile::new().expect("a file");
        let mut lines = Lines::new(writer.reopen().expect("opened"));
        let (mut chunk, mut out) = (vec![0; CHUNK], Vec::new());
        let mut give = |line: LogLine<'_>| {
            let mut text = Vec::new();
            line.write(&mut text).expect("written");
            out.push(text);
        };
        for piece in pieces {
            writer.write_all(piece).expect("written");
            while lines.read(&mut chunk, false, &mut give) {}
        }
        lines.read(&mut chunk, true, &mut give);
        out
    }

    #[test]
    fn a_line_is_what_ends_with_a_line_end_or_the_stream() {
        for (pieces, lines) in [
            (&[&b"ab"[..], b"cd\n"][..], &[&b"abcd"[..]][..]),
            (&[b"a\nno newline"], &[b"a", b"no newline"]),
            (&[b"\n\na\n"], &[b"", b"", b"a"]),
            // A line end of Windows is one end, even when it is split.
            (&[b"a\r", b"\nb\r\n"], &[b"a", b"b"]),
            // Each step of a progress bar is a line.
            (&[b"\r 1%\r 2%\r", b"\r 3%\n"], &[b" 1%", b" 2%", b" 3%"]),
            (&[b"a\xff\xfeb\n"], &[b"a\xff\xfeb"]),
        ] {
            assert_eq!(cut(pieces), lines);
        }
    }

    #[test]
    fn a_long_line_is_given_whole() {
        for length in [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 3] {
            let long = vec![b'x'; length];
            let lines = cut(&[b"a\r\n", &long, &long, b"\nb\n", &long]);
            assert!(lines == [b"a", &*long.repeat(2), b"b", &long], "{length}");
        }
    }

    #[test]
    fn a_substring_is_found_across_two_parts_and_not_outside_the_line() {
        let short = LogLine::Short(b"an apple");
        assert!(short.contains(b"app") && short.contains(b"") && !short.contains(b"ape"));

        let mut file = tempfile::tempfile().expect("a file");
        let [x, y] = [b'x', b'y'].map(|byte| vec![byte; CHUNK - 2]);
        let text = [b"before\n", &*x, b"apple", &*y].concat();
        file.write_all(&text).expect("written");
        let line = LogLine::Long(&file, 7..text.len() as u64);
        assert!(line.contains(b"apple") && line.contains(b"") && !line.contains(b"before"));
    }

    proptest! {
        #[test]
        fn how_the_writes_were_cut_does_not_matter(bytes: Vec<u8>, at in 0_usize..64) {
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            prop_assert_eq!(cut(&[first, second]), cut(&[&bytes]));
        }

        #[test]
        fn nothing_but_line_ends_is_lost(bytes: Vec<u8>) {
            let is_text = |byte: &&u8| !matches!(byte, b'\n' | b'\r');
            let kept: Vec<u8> = cut(&[&bytes]).concat();
            prop_assert_eq!(kept, bytes.iter().filter(is_text).copied().collect::<Vec<u8>>());
        }
    }

    #[test]
    fn the_last_lines_are_whole_and_in_order() {
        let too_early = [vec![b'x'; 20_000], b"\nlast\n".to_vec()].concat();
        for (content, count, lines) in [
            (&b"a\nb\nc\n"[..], 2, &["b", "c"][..]),
            (b"a\xff", 9, &["a\u{fffd}"]),
            (b"", 9, &[]),
            (&too_early, 9, &["last"]),
        ] {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), content).expect("written");
            assert_eq!(last_lines(file.path(), count).expect("read"), lines);
        }
    }
}
