//! Collects the last lines that a child wrote, from pieces of any size.

use std::collections::VecDeque;

/// Number of lines in a report: enough for a traceback and what came before it.
const LINES: usize = 40;
/// Maximum number of bytes kept of a line.
const LONGEST: usize = 2000;

/// A ring buffer of lines.
#[derive(Debug, Default)]
pub struct LastLines {
    lines: VecDeque<String>,
    open: Vec<u8>,
}

impl LastLines {
    /// Adds a piece of output; returns the lines that it completes.
    pub fn push(&mut self, piece: &[u8]) -> Vec<String> {
        let mut ended = Vec::new();
        for (index, part) in piece.split(|byte| *byte == b'\n').enumerate() {
            if index > 0 {
                ended.push(text(&std::mem::take(&mut self.open)));
            }
            let room = LONGEST.saturating_sub(self.open.len());
            self.open.extend(part.iter().take(room));
        }
        self.lines.extend(ended.iter().cloned());
        let extra = self.lines.len().saturating_sub(LINES);
        self.lines.drain(..extra);
        ended
    }

    /// Returns the lines, including an unfinished last one, without empty lines at the ends.
    pub fn all(&self) -> Vec<String> {
        let open = (!self.open.is_empty()).then(|| text(&self.open));
        let mut lines: Vec<_> = self
            .lines
            .iter()
            .cloned()
            .chain(open)
            .skip_while(|line| line.is_empty())
            .collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }
}

/// Returns a line as text, without a trailing carriage return, and with only the last state of a
/// progress bar.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches('\r');
    text.rsplit('\r').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_from_pieces() {
        let mut lines = LastLines::default();
        assert_eq!(lines.push(b"one\ntw"), ["one"]);
        assert_eq!(lines.push(b"o\n10%\r20%"), ["two"]);
        assert_eq!(lines.all(), ["one", "two", "20%"]);
    }

    #[test]
    fn the_last_forty_are_kept() {
        let mut lines = LastLines::default();
        (0..100).for_each(|number| drop(lines.push(format!("{number}\n").as_bytes())));
        assert_eq!((lines.all().len(), lines.all()[0].as_str()), (40, "60"));
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let mut lines = LastLines::default();
        (0..1000).for_each(|_| drop(lines.push(&[b'x'; 1000])));
        assert_eq!(lines.all()[0].len(), 2000);
    }
}
