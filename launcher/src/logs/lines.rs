//! Splits a byte stream into lines. Pure.

use std::ops::Range;

/// Length in bytes above which a line is not kept in memory, so that a rank that never ends a line
/// uses no more than this.
const LONGEST: usize = 1 << 20;

/// One line, without its line end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogLine<'a> {
    /// The bytes of the line.
    Kept(&'a [u8]),
    /// The position in the stream of a line that was not kept.
    Long(Range<u64>),
}

/// Splits a stream of bytes, UTF-8 or not, into lines.
///
/// A line ends at `\n`, `\r\n` or `\r`, as in torchrun, so every step of a progress bar is a line.
/// An empty line that was ended by a single `\r` is dropped, because progress bars begin with one.
#[derive(Debug, Default)]
pub struct Lines {
    /// The bytes of the unfinished line; empty if it is too long.
    partial: Vec<u8>,
    /// Position in the stream at which the line began.
    start: u64,
    /// Length of the line so far.
    length: u64,
    /// Whether the last byte was `\r`, so that a following `\n` ends no further line.
    after_return: bool,
}

impl Lines {
    /// Adds `bytes`, and calls `give` for each line that they complete.
    pub fn push(&mut self, bytes: &[u8], give: &mut impl FnMut(LogLine<'_>)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&rest[..end]);
            self.end_line(rest[end], give);
            rest = &rest[end + 1..];
        }
        self.extend(rest);
    }

    /// Ends the stream, and passes an unfinished line to `give`.
    pub fn finish(&mut self, give: &mut impl FnMut(LogLine<'_>)) {
        if self.length > 0 {
            give(self.line());
            self.begin_line(0);
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.after_return &= bytes.is_empty();
        self.length += bytes.len() as u64;
        if self.length > LONGEST as u64 {
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self, end: u8, give: &mut impl FnMut(LogLine<'_>)) {
        let is_second_half = end == b'\n' && std::mem::take(&mut self.after_return);
        let is_empty_return = end == b'\r' && self.length == 0;
        // A `\r` before any text begins a progress bar. A `\n` right after it still ends an empty
        // line.
        let is_beginning = is_empty_return && !self.after_return;
        if !is_second_half && !is_empty_return {
            give(self.line());
        }
        self.begin_line(1);
        self.after_return = end == b'\r' && !is_beginning;
    }

    fn line(&self) -> LogLine<'_> {
        if self.length > LONGEST as u64 {
            LogLine::Long(self.start..self.start + self.length)
        } else {
            LogLine::Kept(&self.partial)
        }
    }

    /// Begins a line after a line end of `end` bytes.
    fn begin_line(&mut self, end: u64) {
        self.start += self.length + end;
        self.length = 0;
        self.partial.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        let stream = pieces.concat();
        let mut give = |line: LogLine<'_>| match line {
            LogLine::Kept(line) => out.push(line.to_vec()),
            LogLine::Long(place) => {
                out.push(stream[place.start as usize..place.end as usize].to_vec())
            }
        };
        for piece in pieces {
            lines.push(piece, &mut give);
        }
        lines.finish(&mut give);
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
    fn a_long_line_is_given_whole_by_its_place() {
        let long = vec![b'x'; 2 * LONGEST + 3];
        assert!(
            cut(&[b"a\r\n", &long, &long, b"\nb\n", &long])
                == [b"a", &*long.repeat(2), b"b", &long]
        );
        let mut lines = Lines::default();
        lines.push(&long, &mut |_| panic!("it has not ended"));
        assert_eq!(lines.partial.capacity(), 0, "nothing of it is kept");
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
}
