//! Looks up single lines of the journals again, after they were scanned.

use std::io;

use crate::journals::source::JournalSource;

/// Bytes that are read at once to look up a line, because consecutive look-ups are close together.
const WINDOW: u64 = 64 * 1024;

/// Position of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinePosition {
    pub(crate) source: u32,
    /// Length in bytes, without the line end.
    pub(crate) len: u32,
    pub(crate) offset: u64,
}

/// Looks up lines, with one window of each journal in memory.
pub(crate) struct LineReader<'a> {
    sources: &'a [JournalSource],
    windows: Vec<LineWindow>,
}

/// A part of a journal that is in memory.
#[derive(Default)]
struct LineWindow {
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> LineReader<'a> {
    /// Creates a reader of these journals.
    pub(crate) fn new(sources: &'a [JournalSource]) -> Self {
        Self {
            sources,
            windows: sources.iter().map(|_| LineWindow::default()).collect(),
        }
    }

    /// Returns the line at `place`, without its line end.
    ///
    /// # Errors
    /// Returns the errors of the file system, and `UnexpectedEof` if the file has become shorter.
    pub(crate) fn line(&mut self, place: LinePosition) -> io::Result<&[u8]> {
        let index = place.source as usize;
        let (source, window) = (&self.sources[index], &mut self.windows[index]);
        let end = place.offset + u64::from(place.len);
        if place.offset < window.start || end > window.start + window.bytes.len() as u64 {
            // Copies of an environment end their episodes slightly out of order, so an earlier line
            // may be next.
            window.start = place.offset.saturating_sub(WINDOW / 4);
            source.fill(
                &mut window.bytes,
                window.start..end.max(window.start + WINDOW),
            )?;
        }
        let at = (place.offset - window.start) as usize;
        let shorter = || {
            io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("`{}` became shorter", source.name),
            )
        };
        window
            .bytes
            .get(at..at + place.len as usize)
            .ok_or_else(shorter)
    }
}
