//! Bytes of a stream cut into lines. Pure.

use std::mem;

/// A line longer than this many bytes is given in pieces, so that a rank that never ends one takes no more memory.
const LONGEST: usize = 1 << 20;

/// Cuts a stream of bytes, UTF-8 or not, into lines.
///
/// A line ends at `\n`, `\r\n` or `\r`, as for torchrun: every step of a progress bar is a line. An empty line that only
/// a `\r` made is dropped, since progress bars also begin with one.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
    /// The last byte was `\r`, so a `\n` that follows ends nothing.
    after_return: bool,
}

impl Lines {
    /// Takes in `bytes` and calls `give` for each line that they complete, without its end.
    pub fn push(&mut self, bytes: &[u8], give: &mut impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&rest[..end], give);
            self.end_line(rest[end], give);
            rest = &rest[end + 1..];
        }
        self.extend(rest, give);
    }

    /// The stream is over: gives what is left as a line.
    pub fn finish(&mut self, give: &mut impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            give(&mem::take(&mut self.partial));
        }
    }

    fn extend(&mut self, mut bytes: &[u8], give: &mut impl FnMut(&[u8])) {
        self.after_return &= bytes.is_empty();
        while self.partial.len() + bytes.len() > LONGEST {
            let (piece, rest) = bytes.split_at(LONGEST - self.partial.len());
            self.partial.extend_from_slice(piece);
            give(&mem::take(&mut self.partial));
            bytes = rest;
        }
        self.partial.extend_from_slice(bytes);
    }

    fn end_line(&mut self, end: u8, give: &mut impl FnMut(&[u8])) {
        let is_second_half = end == b'\n' && mem::take(&mut self.after_return);
        let is_empty_return = end == b'\r' && self.partial.is_empty();
        if is_empty_return && !self.after_return {
            // `\r` before anything: a progress bar begins. A `\n` right after it still is an empty line.
            return;
        }
        if !is_second_half && !is_empty_return {
            give(&self.partial);
            self.partial.clear();
        }
        self.after_return = end == b'\r';
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        let mut give = |line: &[u8]| out.push(line.to_vec());
        for piece in pieces {
            lines.push(piece, &mut give);
        }
        lines.finish(&mut give);
        out
    }

    #[test]
    fn a_line_in_two_writes_is_one_line() {
        assert_eq!(cut(&[b"ab", b"cd\n"]), [b"abcd"]);
    }

    #[test]
    fn an_unterminated_last_line_is_given() {
        assert_eq!(cut(&[b"a\nno newline"]), [b"a".to_vec(), b"no newline".to_vec()]);
    }

    #[test]
    fn empty_lines_stay() {
        assert_eq!(cut(&[b"\n\na\n"]), [b"".to_vec(), b"".to_vec(), b"a".to_vec()]);
    }

    #[test]
    fn a_windows_line_end_is_one_end_even_when_split() {
        assert_eq!(cut(&[b"a\r", b"\nb\r\n"]), [b"a", b"b"]);
    }

    #[test]
    fn a_progress_bar_is_a_line_a_step() {
        assert_eq!(cut(&[b"\r 1%\r 2%\r", b"\r 3%\n"]), [b" 1%", b" 2%", b" 3%"]);
    }

    #[test]
    fn bytes_that_are_no_text_pass() {
        assert_eq!(cut(&[b"a\xff\xfeb\n"]), [b"a\xff\xfeb"]);
    }

    #[test]
    fn an_endless_line_comes_in_pieces() {
        let long = vec![b'x'; 2 * LONGEST + 3];
        let lengths: Vec<usize> = cut(&[&long, b"\n"]).iter().map(Vec::len).collect();
        assert_eq!(lengths, [LONGEST, LONGEST, 3]);
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
