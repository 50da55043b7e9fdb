//! Splits a journal into pieces of whole lines, so that several threads can read it and none holds
//! all of it.

use std::io::{self, BufRead as _};
use std::ops::Range;

use jobs::journal::{MAX_LINE_BYTES, too_long};

use crate::journals::source::JournalSource;

/// Bytes of one piece.
const PIECE: u64 = 1 << 20;

/// Bytes that are read at once to find the end of a piece's last line.
const STEP: u64 = 64 * 1024;

/// Returns the pieces of a range of a journal, which begins with a line.
pub(crate) fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = range;
    let count = end.saturating_sub(start).div_ceil(PIECE);
    (0..count).map(move |piece| start + piece * PIECE..(start + (piece + 1) * PIECE).min(end))
}

/// The lines that begin in one range of a journal.
pub(crate) struct JournalPiece<'a> {
    /// Offset of the first line in the journal.
    start: u64,
    /// The complete lines with their line ends.
    bytes: &'a [u8],
    /// Bytes after the last line end of the journal, if the journal ends in this piece.
    pub(crate) torn: u64,
}

/// Reads the lines that begin in `range` into `buffer`.
///
/// # Errors
/// Returns the errors of the file system, and an error for a line that is longer than any valid
/// one.
pub(crate) fn read<'a>(
    source: &JournalSource,
    range: Range<u64>,
    buffer: &'a mut Vec<u8>,
) -> io::Result<JournalPiece<'a>> {
    // The byte before the range tells whether a line begins at its first byte.
    let from = range.start.saturating_sub(1);
    source.fill(buffer, from..range.end)?;
    let mut more = Vec::new();
    while !buffer.ends_with(b"\n") {
        let end = from + buffer.len() as u64;
        source.fill(&mut more, end..end + STEP)?;
        if buffer.len() as u64 > PIECE + MAX_LINE_BYTES {
            return Err(source.naming(&too_long()));
        }
        let line_end = more.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        buffer.extend_from_slice(&more[..line_end.unwrap_or(more.len())]);
        if more.is_empty() {
            break;
        }
    }
    let bytes: &'a [u8] = buffer;
    let skipped = match range.start {
        0 => 0,
        _ => bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(bytes.len(), |at| at + 1),
    };
    let whole = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |last| last + 1)
        .max(skipped);
    // An incomplete line that begins before this range is reported by the piece in which it begins.
    let torn = (bytes.len() - whole) as u64;
    Ok(JournalPiece {
        start: from + skipped as u64,
        bytes: &bytes[skipped..whole],
        torn,
    })
}

impl JournalPiece<'_> {
    /// Returns the lines without their line ends, each with its offset in the journal.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (line, offset) = (rest, (self.bytes.len() - rest.len()) as u64);
            // It compares many bytes at once, and reading a slice does not fail.
            let len = rest.skip_until(b'\n').ok().filter(|len| *len > 0)?;
            Some((self.start + offset, &line[..len - 1]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::Journals;

    proptest! {
        #[test]
        fn every_line_is_in_one_piece_wherever_the_cuts_are(
            lengths in proptest::collection::vec(0usize..40, 0..20), step in 1u64..30, torn in 0usize..10
        ) {
            let text = lengths.iter().map(|len| "x".repeat(*len) + "\n").collect::<String>() + &"t".repeat(torn);
            let journals = Journals::default().and_delivered([(0, text.clone().into_bytes())]);
            let source = &journals.sources()[0];
            let ranges = (0..(text.len() as u64).div_ceil(step)).map(|at| at * step..((at + 1) * step).min(text.len() as u64));
            let mut found = Vec::new();
            let mut torn_bytes = 0;
            for range in ranges {
                let mut buffer = Vec::new();
                let piece = read(source, range, &mut buffer).unwrap();
                torn_bytes += piece.torn;
                found.extend(piece.lines().map(|(at, line)| (at, line.len())));
            }
            let mut at = 0;
            let mut wanted = Vec::new();
            for length in lengths {
                wanted.push((at, length));
                at += length as u64 + 1;
            }
            prop_assert_eq!((found, torn_bytes), (wanted, torn as u64));
        }
    }

    #[test]
    fn pieces_cover_a_journal() {
        assert_eq!(pieces(0..0).count(), 0);
        let found: Vec<_> = pieces(0..PIECE + 1).collect();
        assert_eq!(found, [0..PIECE, PIECE..PIECE + 1]);
        let found: Vec<_> = pieces(7..PIECE + 8).collect();
        assert_eq!(found, [7..PIECE + 7, PIECE + 7..PIECE + 8]);
        assert_eq!(
            pieces(std::ops::Range { start: 9, end: 7 }).count(),
            0,
            "it became shorter"
        );
    }
}
