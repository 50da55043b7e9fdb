//! Sources of journal lines: files, which are read in pieces, or bytes that another rank delivered.
//!
//! A journal may be larger than memory. At most one piece of a journal is in memory for each
//! thread; a line that is needed again is read from its [`LinePosition`].

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use jobs::journal::{RankStart, naming};
use jobs::launch::LivingLaunch;
use jobs::layout::RunFolder;
use jobs::threads;

use crate::journals::source::JournalSource;

mod held;
pub(crate) mod pieces;
pub(crate) mod source;

/// The journals of a run.
#[derive(Debug, Default)]
pub struct Journals {
    sources: Vec<JournalSource>,
    /// Launches that are alive on a node, whose ranks' locks cannot be seen from here.
    unseen: BTreeSet<(String, String)>,
    /// Who writes into the folder, if a launch does.
    launch: Option<String>,
}

impl Journals {
    /// Opens the journals of a run folder as they are now; lines that are appended later are not
    /// seen. A folder without journals is no error.
    ///
    /// # Errors
    /// Returns an error, with the name of the journal, if one exists and cannot be opened.
    pub fn of(folder: &RunFolder) -> io::Result<Self> {
        let locked = held::locked();
        let mut sources = Vec::new();
        for path in jobs::journal::files(&folder.journals())? {
            sources.push(
                JournalSource::open(&path, folder.relative(&path), &locked)
                    .map_err(|err| naming(&path, &err))?,
            );
        }
        Ok(Self {
            sources,
            ..Self::default()
        })
    }

    /// Opens the journals again, as they are now: those that were known before keep their place.
    /// Returns whether they continue what was there; if not, they have to be read from the start.
    ///
    /// # Errors
    /// Returns the errors of [`Journals::of`].
    pub(crate) fn refresh(&mut self, folder: &RunFolder) -> io::Result<bool> {
        // Both are in order of their names, so that what is looked for is nearly always the first.
        let mut fresh = VecDeque::from(Self::of(folder)?.sources);
        let mut sources = Vec::with_capacity(fresh.len());
        for known in &self.sources {
            let same = fresh.iter().position(|source| source.continues(known));
            let Some(index) = same else { return Ok(false) };
            sources.extend(fresh.remove(index));
        }
        sources.extend(fresh);
        self.sources = sources;
        Ok(true)
    }

    /// Adds the journals that ranks delivered. If the folder is shared, the same journals are already
    /// there; then the longer ones are kept.
    #[must_use]
    pub fn and_delivered(mut self, delivered: impl IntoIterator<Item = (usize, Vec<u8>)>) -> Self {
        let names = self.sources.iter().map(|source| source.name.clone());
        let mut known: HashMap<String, usize> = names.zip(0..).collect();
        for (rank, bytes) in delivered {
            let name = RunFolder::new(Path::new(""))
                .journal(rank)
                .to_string_lossy()
                .into_owned();
            let delivered = JournalSource::delivered(name.clone(), rank, bytes);
            let same = known.get(&name).map(|index| &mut self.sources[*index]);
            match same.filter(|source| source.agrees(&delivered)) {
                Some(source) if source.len() >= delivered.len() => {}
                Some(source) => *source = delivered,
                None => {
                    known.insert(name, self.sources.len());
                    self.sources.push(delivered);
                }
            }
        }
        self
    }

    /// Notes which launches are alive, see [`jobs::launch::Pulse`]. Their ranks on another machine or
    /// in another container run, although their locks cannot be seen.
    pub fn note_launches(&mut self, living: &[LivingLaunch]) {
        let locked = held::locked();
        let is_seen = |launch: &&LivingLaunch| {
            File::open(&launch.path).is_ok_and(|file| locked.contains(&file))
        };
        let unseen = living.iter().filter(|launch| !is_seen(launch));
        self.unseen = unseen
            .map(|launch| (launch.holder.launch.clone(), launch.holder.host.clone()))
            .collect();
        self.launch = living.first().map(|launch| launch.holder.to_string());
    }

    /// Returns whether a rank that has started like this runs where its lock cannot be seen.
    pub(crate) fn runs_unseen(&self, start: &RankStart) -> bool {
        let launch = start.launch.clone();
        launch.is_some_and(|launch| self.unseen.contains(&(launch, start.host.clone())))
    }

    /// Returns who writes into the folder, if anybody does. Unlike [`jobs::journal::in_use`] this
    /// takes no lock, so it never hinders a rank that starts.
    pub fn writer(&self) -> Option<String> {
        let is_held = || self.sources.iter().any(|source| source.is_held);
        let rank = || is_held().then(|| "a rank is running".to_owned());
        self.launch.clone().or_else(rank)
    }

    /// Returns the paths of the journals that are files, in order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().filter_map(JournalSource::path)
    }

    /// Writes the complete lines of one journal, each as `change` appends it with its line end.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub(crate) fn copy(
        &self,
        index: usize,
        change: impl Fn(&[u8], &mut Vec<u8>) + Sync,
        to: &mut impl io::Write,
    ) -> io::Result<()> {
        let source = &self.sources[index];
        let work: Vec<_> = pieces::pieces(0..source.len()).collect();
        let one = |range: &Range<u64>, buffer: &mut Vec<u8>| -> io::Result<Vec<u8>> {
            let mut changed = Vec::new();
            pieces::read(source, range.clone(), buffer)?
                .lines()
                .for_each(|(_, line)| change(line, &mut changed));
            Ok(changed)
        };
        threads::in_order(&work, one, |_, changed| to.write_all(&changed))
    }

    pub(crate) fn sources(&self) -> &[JournalSource] {
        &self.sources
    }

    /// Returns a reader that looks up lines.
    pub(crate) fn reader(&self) -> LineReader<'_> {
        LineReader {
            sources: &self.sources,
            windows: self.sources.iter().map(|_| LineWindow::default()).collect(),
        }
    }
}

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

impl LineReader<'_> {
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
