//! The lines of a log file: splits what was read into lines, and finds the last ones.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::mem;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Bytes that are read of a file at a time.
pub const CHUNK: usize = 64 << 10;

/// Bytes of a line from which on it is cut into several, so that a rank that never ends a line uses
/// little more memory than this.
const LONGEST: usize = 1 << 20;

/// Number of bytes in which the last lines are looked for.
const WINDOW: u64 = 16 << 10;

/// Splits a log file, UTF-8 or not, into lines.
///
/// A line ends at `\n`, `\r\n` or `\r`, as in torchrun, so every step of a progress bar is a line.
/// An empty line that was ended by a single `\r` is dropped, because progress bars begin with one.
#[derive(Debug)]
pub struct Lines {
    file: File,
    /// Position in the file up to which it has been read.
    position: u64,
    /// The beginning of a line that has not ended.
    begun: Vec<u8>,
    /// Whether the last line end was a `\r`, so that a `\n` right after it ends no further line.
    after_return: bool,
    /// Whether the bytes before the next line end were cut off, so that no line is left if it comes
    /// at once.
    was_cut: bool,
}

impl Lines {
    /// Returns the lines from the beginning of the file.
    pub fn new(file: File) -> Lines {
        Lines {
            file,
            position: 0,
            begun: Vec::new(),
            after_return: false,
            was_cut: false,
        }
    }

    /// Reads the next bytes into `chunk`, and calls `give` for each line that they end, without its
    /// line end; if the file `is_over`, for an unfinished line, too. Returns whether there may be
    /// more lines.
    pub fn read(&mut self, chunk: &mut [u8], is_over: bool, mut give: impl FnMut(&[u8])) -> bool {
        // A read error is treated as no new data.
        let length = self.file.read_at(chunk, self.position).unwrap_or(0);
        self.position += length as u64;
        let mut rest = &chunk[..length];
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.begun.extend_from_slice(&rest[..end]);
            let line = mem::take(&mut self.begun);
            let ends_cut = mem::take(&mut self.was_cut) && line.is_empty();
            let follows_return = self.after_return && line.is_empty();
            match rest[end] {
                _ if ends_cut => {}
                // The second half of an end, or the beginning of a progress bar.
                b'\n' if follows_return => {}
                b'\r' if line.is_empty() => {}
                _ => give(&line),
            }
            self.after_return =
                rest[end] == b'\r' && (!line.is_empty() || follows_return || ends_cut);
            rest = &rest[end + 1..];
        }
        self.begun.extend_from_slice(rest);
        if self.begun.len() >= LONGEST || (is_over && !self.begun.is_empty()) {
            give(&mem::take(&mut self.begun));
            self.was_cut = true;
        }
        length > 0
    }
}

/// Returns up to `count` of the last lines of a file, without blank ones at its end, and without a
/// line that begins before the last 16 KiB if another one follows. Invalid UTF-8 is replaced.
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
    let text = text.trim_end();
    let whole = match text.split_once('\n') {
        Some((_, whole)) if start > 0 => whole,
        _ => text,
    };
    let lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    Ok(lines[lines.len().saturating_sub(count)..].to_vec())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    /// Returns the lines of a file that is written in these pieces, and read after each.
    fn cut(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut writer = tempfile::NamedTempFile::new().expect("a file");
        let mut lines = Lines::new(writer.reopen().expect("opened"));
        let (mut chunk, mut out) = (vec![0; CHUNK], Vec::new());
        let mut give = |line: &[u8]| out.push(line.to_vec());
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
    fn a_line_without_end_is_cut_and_loses_nothing() {
        let long = vec![b'x'; LONGEST - 1];
        assert_eq!(cut(&[b"a\r\n", &long, b"\nb"]), [b"a", &*long, b"b"]);
        let whole = vec![b'x'; LONGEST];
        assert_eq!(cut(&[&whole, b"\nb\n"]), [&*whole, b"b"]);
        assert_eq!(cut(&[&whole, b"\r\n\n"]), [&*whole, b""]);
        let cut = cut(&[&long, &long, b"\nb\n"]);
        assert_eq!(cut.len(), 3);
        assert!(cut[0].len() < LONGEST + CHUNK && cut[..2].concat() == long.repeat(2));
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
        let long = vec![b'x'; 20_000];
        let too_early = [&long, &b"\nlast\n"[..]].concat();
        let alone = [&long, &b"\n\n"[..]].concat();
        let rest = "x".repeat(WINDOW as usize - 2);
        for (content, count, lines) in [
            (&b"a\nb\nc\n"[..], 2, &["b", "c"][..]),
            (b"a\xff", 9, &["a\u{fffd}"]),
            (b"", 9, &[]),
            (&too_early, 9, &["last"]),
            (&alone, 9, &[&rest]),
            (b"a\n\nb\n\n\r\n \n", 2, &["", "b"]),
        ] {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), content).expect("written");
            assert_eq!(last_lines(file.path(), count).expect("read"), lines);
        }
    }
}
