//! Cuts what arrives in the pipe into lines. Pure.

/// Bytes of a line at most. A line of torch has no more than `PIPE_BUF`, because only so many are
/// written in one piece.
pub const MAX_LINE: usize = 4096;

/// The lines of a stream.
#[derive(Debug, Default)]
pub struct Lines {
    /// The beginning of a line that has not ended, of at most [`MAX_LINE`] bytes.
    begun: Vec<u8>,
    /// Whether that line is longer, so that its rest is skipped.
    is_too_long: bool,
}

/// A line, or what came instead of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A line without its end.
    Line(Vec<u8>),
    /// A line that is longer than [`MAX_LINE`].
    TooLong,
}

impl Lines {
    /// Takes bytes, and returns the lines that they end.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            self.extend(piece);
            if pieces.peek().is_some() {
                cuts.push(self.end());
            }
        }
        cuts
    }

    fn extend(&mut self, piece: &[u8]) {
        if self.is_too_long || self.begun.len() + piece.len() > MAX_LINE {
            self.is_too_long = true;
            self.begun.clear();
        } else {
            self.begun.extend_from_slice(piece);
        }
    }

    fn end(&mut self) -> Cut {
        let line = std::mem::take(&mut self.begun);
        match std::mem::take(&mut self.is_too_long) {
            true => Cut::TooLong,
            false => Cut::Line(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(lines: &[Vec<u8>], sizes: &[usize]) -> Vec<Cut> {
        let mut text: Vec<u8> = lines
            .iter()
            .flat_map(|line| [line, &b"\n"[..]].concat())
            .collect();
        let mut reader = Lines::default();
        let mut cuts = Vec::new();
        let mut sizes = sizes.iter().cycle();
        while !text.is_empty() {
            let size = sizes.next().copied().unwrap_or(1).clamp(1, text.len());
            let rest = text.split_off(size);
            cuts.extend(reader.push(&text));
            assert!(reader.begun.len() <= MAX_LINE);
            text = rest;
        }
        cuts
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_arrive(
            lines in prop::collection::vec("[a-z]{0,8}", 0..8),
            long in prop::option::of((0_usize..8, MAX_LINE - 2..MAX_LINE + 5000)),
            sizes in prop::collection::vec(1_usize..9000, 1..5),
        ) {
            let mut lines: Vec<Vec<u8>> = lines.into_iter().map(String::into_bytes).collect();
            if let Some((at, length)) = long {
                lines.insert(at.min(lines.len()), vec![b'x'; length]);
            }
            let wanted: Vec<Cut> = lines
                .iter()
                .map(|line| match line.len() > MAX_LINE {
                    true => Cut::TooLong,
                    false => Cut::Line(line.clone()),
                })
                .collect();
            prop_assert_eq!(cut(&lines, &sizes), wanted);
        }
    }
}
