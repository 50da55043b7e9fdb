//! A line that is too long for memory: reads it again from its log file, piece by piece.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Size of a piece in bytes.
const PIECE: usize = 64 << 10;

/// A line by its position in a file, without its line end.
#[derive(Clone, Debug)]
pub struct LongLine<'a> {
    /// The log file.
    pub file: &'a File,
    /// Position of the line in the file.
    pub place: Range<u64>,
}

impl LongLine<'_> {
    /// Calls `take` for each piece in order. Bytes that cannot be read any more, because the rank
    /// has truncated its file, are left out.
    ///
    /// # Errors
    /// Returns the first error of `take`.
    pub fn pieces(&self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        let mut at = self.place.start;
        while at < self.place.end {
            let wanted = usize::try_from(self.place.end - at)
                .unwrap_or(PIECE)
                .min(PIECE);
            let Ok(length @ 1..) = self.file.read_at(&mut piece[..wanted], at) else {
                return Ok(());
            };
            take(&piece[..length])?;
            at += length as u64;
        }
        Ok(())
    }

    /// Returns whether the line contains `wanted`, also across two pieces.
    pub fn contains(&self, wanted: &[u8]) -> bool {
        let (mut window, mut is_found) = (Vec::new(), wanted.is_empty());
        let searched = self.pieces(|piece| {
            window.extend_from_slice(piece);
            is_found |= contains(&window, wanted);
            let kept = window.len().saturating_sub(wanted.len().saturating_sub(1));
            window.drain(..kept);
            Ok(())
        });
        searched.is_ok() && is_found
    }
}

/// Returns whether `line` contains `wanted`.
pub fn contains(line: &[u8], wanted: &[u8]) -> bool {
    wanted.is_empty() || line.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_substring_is_found_anywhere() {
        assert!(contains(b"an apple", b"app") && contains(b"x", b"") && !contains(b"ap", b"app"));
    }

    #[test]
    fn a_substring_is_found_across_two_pieces_and_not_outside_the_line() {
        let mut file = tempfile::tempfile().expect("a file");
        let text = [
            b"before\n".to_vec(),
            vec![b'x'; PIECE - 2],
            b"apple".to_vec(),
            vec![b'y'; PIECE],
        ]
        .concat();
        file.write_all(&text).expect("written");
        let line = LongLine {
            file: &file,
            place: 7..text.len() as u64,
        };
        assert!(line.contains(b"apple") && line.contains(b"") && !line.contains(b"before"));
        let mut read = Vec::new();
        let keep = |piece: &[u8]| {
            read.extend_from_slice(piece);
            Ok(())
        };
        line.pieces(keep).expect("nothing fails");
        assert!(read == text[7..], "all of it, once");
    }
}
