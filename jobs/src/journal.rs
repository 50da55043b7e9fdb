//! The journal: one JSON line for everything that happened in a rank, synced when it is written.
//!
//! It only grows. A line that a crash tore is the last one, has no line end, and is cut off by the next writer; what
//! it was about happens again. Report and resume are functions of plan and journals and of nothing else.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

mod line;
mod stamp;

pub use line::{EnvLost, EpisodeStart, Gpu, JobEnd, JobStart, Line, PolicyFiles, Quantiles, RankEnd, RankStart};
pub(crate) use stamp::Origin;
pub use stamp::{Accepted, Provenance, Stamp, Stamps};

/// Bytes of a line at most. One of an episode has about 1 KB; the last words of a simulator are the longest.
pub(crate) const MAX_LINE_BYTES: u64 = 16 << 20;

/// What a journal file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Whole lines, in order.
    pub lines: Vec<Line>,
    /// Lines that say something else, by number from 1; never written by a crash, so worth a word.
    pub damaged: Vec<usize>,
    /// Bytes of a torn last line.
    pub torn: u64,
    /// Lines of another run, or of a job that has changed since, by number from 1.
    pub foreign: Vec<usize>,
}

/// Reads the bytes of a journal. Any bytes are read to something.
pub fn parse(bytes: &[u8]) -> Contents {
    let whole = whole(bytes);
    let mut contents = Contents { torn: (bytes.len() - whole) as u64, ..Contents::default() };
    for (index, line) in bytes[..whole].split(|byte| *byte == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(line) => contents.lines.push(line),
            Err(_) if line.is_empty() => {}
            Err(_) => contents.damaged.push(index + 1),
        }
    }
    contents
}

/// Bytes up to the end of the last whole line.
fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

/// As [`whole`], of a file of `len` bytes, which is read from its end.
fn whole_of(file: &File, len: u64) -> io::Result<u64> {
    const STEP: u64 = 64 << 10;
    let (mut end, mut bytes) = (len, Vec::new());
    while end > 0 {
        let start = end.saturating_sub(STEP);
        bytes.resize((end - start) as usize, 0);
        file.read_exact_at(&mut bytes, start)?;
        match whole(&bytes) {
            0 if len - start > MAX_LINE_BYTES => return Err(too_long()),
            0 => end = start,
            whole => return Ok(start + whole as u64),
        }
    }
    Ok(0)
}

/// Every `journal_rank<r>.jsonl` of a folder, by name; none is no error.
///
/// # Errors
/// When the folder is there and cannot be read.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("journal_rank") && name.ends_with(".jsonl") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads every journal of a folder; none is no error.
///
/// # Errors
/// When the folder or a file is there and cannot be read.
pub fn read_all(folder: &Path) -> io::Result<Vec<(PathBuf, Contents)>> {
    files(folder)?.into_iter().map(|path| read(&path, |_, _| true).map(|contents| (path, contents))).collect()
}

/// As [`read_all`], with the lines that are results of one run.
///
/// # Errors
/// As [`read_all`].
pub fn read_own(folder: &Path, accepted: &Accepted) -> io::Result<Vec<(PathBuf, Contents)>> {
    let files = files(folder)?.into_iter();
    files.map(|path| read(&path, |line, text| is_own(line, text, accepted)).map(|contents| (path, contents))).collect()
}

fn is_own(line: &Line, text: &[u8], accepted: &Accepted) -> bool {
    let stamp = stamp_of(text);
    accepted.origin(line.job(), stamp.run.as_deref(), stamp.fingerprint.as_deref()) != Origin::Foreign
}

/// What a line says of where it is from.
pub(crate) fn stamp_of(line: &[u8]) -> Stamp {
    serde_json::from_slice(line).unwrap_or_default()
}

/// Reads one journal, a line at a time: what it holds is what its lines say, not what its size is.
fn read(path: &Path, is_own: impl Fn(&Line, &[u8]) -> bool) -> io::Result<Contents> {
    let mut file = BufReader::new(open_to_read(path)?);
    let (mut contents, mut line) = (Contents::default(), Vec::new());
    for number in 1.. {
        read_line(&mut file, &mut line).map_err(|err| naming(path, &err))?;
        match line.strip_suffix(b"\n") {
            None => {
                contents.torn = line.len() as u64;
                break;
            }
            Some(b"") => {}
            Some(text) => match serde_json::from_slice(text) {
                Ok(line) if is_own(&line, text) => contents.lines.push(line),
                Ok(_) => contents.foreign.push(number),
                Err(_) => contents.damaged.push(number),
            },
        }
    }
    Ok(contents)
}

/// Hands over every line of a journal that says something, with where it is from.
///
/// # Errors
/// Those of the file system, and those of `on`.
pub(crate) fn each(path: &Path, mut on: impl FnMut(Line, Stamp) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufReader::new(open_to_read(path)?);
    let mut line = Vec::new();
    loop {
        read_line(&mut file, &mut line).map_err(|err| naming(path, &err))?;
        let Some(text) = line.strip_suffix(b"\n") else { return Ok(()) };
        if let Ok(parsed) = serde_json::from_slice(text) {
            on(parsed, stamp_of(text))?;
        }
    }
}

/// Reads up to the next line end, or to the end of the file; nothing more is there if the line is empty.
///
/// # Errors
/// Those of the file system, and a line beyond [`MAX_LINE_BYTES`].
pub(crate) fn read_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    file.take(MAX_LINE_BYTES + 1).read_until(b'\n', line)?;
    if line.len() as u64 > MAX_LINE_BYTES { Err(too_long()) } else { Ok(()) }
}

/// What is said of a line beyond [`MAX_LINE_BYTES`].
pub(crate) fn too_long() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("it has a line of more than {MAX_LINE_BYTES} bytes"))
}

fn open_to_read(path: &Path) -> io::Result<File> {
    crate::files::open(path).map_err(|err| naming(path, &err))
}

/// Names the file of an error.
pub(crate) fn naming(path: &Path, err: &io::Error) -> io::Error {
    io::Error::new(err.kind(), format!("`{}`: {err}", path.display()))
}

/// Whether a process is writing a journal of this folder.
pub fn in_use(folder: &Path) -> bool {
    // Opening a FIFO would wait for its reader.
    let is_regular = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let busy = |path: PathBuf| {
        let file = OpenOptions::new().write(true).open(path);
        file.is_ok_and(|file| match file.try_lock() {
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(_)) => false,
            Ok(()) => {
                // As in `Journal`'s `drop`; a file system that cannot unlock has not locked either.
                let _ = file.unlock();
                false
            }
        })
    };
    files(folder).unwrap_or_default().into_iter().filter(is_regular).any(busy)
}

/// Whether a journal of this folder has a whole line, whatever that says; reads no further than to the first.
///
/// # Errors
/// When the folder or a file is there and cannot be read.
pub fn begun(folder: &Path) -> io::Result<bool> {
    for path in files(folder)? {
        let mut file = BufReader::new(open_to_read(&path)?);
        let mut line = Vec::new();
        loop {
            read_line(&mut file, &mut line).map_err(|err| naming(&path, &err))?;
            match &line[..] {
                [.., b'\n'] if line.len() > 1 => return Ok(true),
                [b'\n'] => {}
                _ => break,
            }
        }
    }
    Ok(false)
}

/// Longest time for which somebody who only looks ([`in_use`]) has the lock of a journal, with a lot to spare.
const LOOK: Duration = Duration::from_secs(1);

/// The first life of a rank that a folder's journals tell of; reads one line of each.
///
/// # Errors
/// When the folder or a file is there and cannot be read.
pub fn first_rank(folder: &Path) -> io::Result<Option<RankStart>> {
    for path in files(folder)? {
        let mut line = Vec::new();
        read_line(&mut BufReader::new(open_to_read(&path)?), &mut line).map_err(|err| naming(&path, &err))?;
        if let Ok(Line::Rank(start)) = serde_json::from_slice(&line) {
            return Ok(Some(start));
        }
    }
    Ok(None)
}

/// The journal of one rank, open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    begun: u64,
    torn: u64,
    stamps: Stamps,
}

impl Journal {
    /// Opens or makes a journal for this process alone; a torn last line is cut off.
    ///
    /// # Errors
    /// Those of the file system, and `ResourceBusy` while another process has it open.
    #[expect(clippy::disallowed_methods, reason = "waits for a lock that nobody tells of, with a deadline")]
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // The lock goes with the process, however that ends. A file system without locks has no other guard either.
        let deadline = Instant::now() + LOOK;
        while let Err(TryLockError::WouldBlock) = file.try_lock() {
            if Instant::now() > deadline {
                return Err(io::Error::new(ErrorKind::ResourceBusy, "another evaluation is running in this folder"));
            }
            sleep(Duration::from_millis(5));
        }
        let len = file.metadata()?.len();
        let begun = whole_of(&file, len)?;
        file.set_len(begun)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file, path: path.to_owned(), begun, torn: len - begun, stamps: Stamps::default() })
    }

    /// Puts on every line of which run, launch and job it is.
    #[must_use]
    pub fn stamped(self, stamps: Stamps) -> Self {
        // A journal gives its lock back when it is dropped, so its parts cannot be taken.
        let mut journal = self;
        journal.stamps = stamps;
        journal
    }

    /// Whether it had lines when it was opened.
    pub fn was_begun(&self) -> bool {
        self.begun > 0
    }

    /// Bytes of a torn last line that were cut off when it was opened.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// Appends a line and syncs it to the disk. A line that does not fit is taken back, so what follows stays whole.
    ///
    /// # Errors
    /// Those of the file system (a full disk); the line is then not in the journal.
    pub fn append(&mut self, line: &Line) -> io::Result<()> {
        self.write(line, File::sync_data)
    }

    /// As [`Journal::append`], without waiting for the disk: the line survives the process, and not the machine.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn note(&mut self, line: &Line) -> io::Result<()> {
        self.write(line, |_| Ok(()))
    }

    fn write(&mut self, line: &Line, sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        self.stamps.of(line).seal(&mut text);
        text.push(b'\n');
        let start = self.file.stream_position()?;
        let written = self.file.write_all(&text).and_then(|()| sync(&self.file));
        if written.is_err() {
            self.file.set_len(start)?;
            self.file.seek(SeekFrom::Start(start))?;
        }
        written
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Journal {
    /// Closing the file is not enough: a child that another thread has forked and that has not called `exec` yet has
    /// the same open file, and with it the lock.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::Episode;
    use crate::job::JobIndex;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;

    pub(crate) fn episode(number: u64) -> Line {
        let episode = Episode {
            seed: 9,
            return_: 0.1 + 0.2,
            language_instruction: "touch \"it\"\n".to_owned(),
            ended: "2026-11-21T10:00:00.000Z".to_owned(),
            ..Episode::sample(0, "reach", number)
        };
        episode.line()
    }

    #[test]
    fn what_is_appended_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal_rank0.jsonl");
        let lines = [episode(0), episode(1)];
        let mut journal = Journal::open(&path).unwrap();
        lines.iter().for_each(|line| journal.append(line).unwrap());
        assert_eq!(read_all(dir.path()).unwrap()[0].1, Contents { lines: lines.to_vec(), ..Contents::default() });
    }

    #[test]
    fn a_line_from_before_largest_rewards_were_recorded_is_read_and_written_as_it_was() {
        let text = serde_json::to_string(&episode(0)).unwrap();
        assert!(!text.contains("max_reward"));
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), episode(0));
    }

    #[test]
    fn a_torn_line_is_cut_off_by_the_next_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal_rank0.jsonl");
        Journal::open(&path).unwrap().append(&episode(0)).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"type\":\"epi").unwrap();
        assert_eq!(parse(&std::fs::read(&path).unwrap()).torn, 12);
        Journal::open(&path).unwrap().append(&episode(1)).unwrap();
        assert_eq!(parse(&std::fs::read(&path).unwrap()).lines, [episode(0), episode(1)]);
    }

    #[test]
    fn a_journal_of_a_terabyte_without_a_line_end_is_refused_and_a_fifo_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal_rank0.jsonl");
        Journal::open(&path).unwrap().append(&episode(0)).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let told = read_all(dir.path()).unwrap_err().to_string();
        assert!(told.ends_with("journal_rank0.jsonl`: it has a line of more than 16777216 bytes"), "{told}");
        assert!(Journal::open(&path).unwrap_err().to_string().contains("more than 16777216 bytes"));
        assert!(begun(dir.path()).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        for told in
            [read_all(dir.path()).unwrap_err(), begun(dir.path()).unwrap_err(), first_rank(dir.path()).unwrap_err()]
        {
            assert!(told.to_string().contains("it is a FIFO, a regular file is needed"), "{told}");
        }
        assert!(!in_use(dir.path()));
    }

    #[test]
    fn two_writers_at_once_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal_rank0.jsonl");
        let first = Journal::open(&path).unwrap();
        assert_eq!(Journal::open(&path).unwrap_err().kind(), ErrorKind::ResourceBusy);
        assert!(in_use(dir.path()));
        drop(first);
        assert!(!in_use(dir.path()));
        assert!(Journal::open(&path).is_ok());
    }

    #[test]
    fn a_journal_that_was_closed_is_free_although_a_child_still_has_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal_rank0.jsonl");
        let journal = Journal::open(&path).unwrap();
        // What a child of another thread has between `fork` and `exec`.
        let _inherited = journal.file.try_clone().unwrap();
        drop(journal);
        assert!(!in_use(dir.path()));
        assert!(Journal::open(&path).is_ok());
    }

    #[test]
    fn a_writer_waits_for_somebody_who_only_looks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal_rank0.jsonl");
        let looking = File::create(&path).unwrap();
        looking.lock().unwrap();
        let look = std::thread::spawn(move || {
            #[expect(clippy::disallowed_methods, reason = "the writer waits meanwhile")]
            sleep(Duration::from_millis(20));
            drop(looking);
        });
        assert!(Journal::open(&path).is_ok());
        look.join().unwrap();
    }

    #[test]
    fn a_line_that_means_nothing_is_named_and_the_rest_is_kept() {
        let mut bytes = serde_json::to_vec(&episode(0)).unwrap();
        bytes.extend_from_slice(b"\nnonsense\n");
        let contents = parse(&bytes);
        assert_eq!((contents.lines, contents.damaged, contents.torn), (vec![episode(0)], vec![2], 0));
    }

    #[test]
    fn a_line_that_does_not_fit_the_disk_leaves_the_journal_whole() {
        // /dev/full refuses every write as a full disk does, and cannot be truncated; a limit of the file size can.
        let mut journal = Journal {
            stamps: Stamps::default(),
            file: OpenOptions::new().write(true).open("/dev/full").unwrap(),
            path: "x".into(),
            begun: 0,
            torn: 0,
        };
        assert!(journal.append(&episode(0)).is_err());
    }

    /// A line of each kind that a rank writes in its life.
    fn life() -> Vec<Line> {
        let lost = EnvLost {
            job_index: JobIndex(0),
            rank: 0,
            env: 1,
            episode: 1,
            step: 4,
            attempt: 1,
            reason: "killed by SIGKILL".to_owned(),
            stderr: vec!["\u{1f916}\u{0}\n\"".to_owned()],
            at: String::new(),
        };
        let files = PolicyFiles {
            policy_type: "gr00t".to_owned(),
            path: "model".to_owned(),
            sha256: "0".repeat(64),
            bytes: 7,
            at: String::new(),
        };
        vec![
            Line::Rank(RankStart::default()),
            Line::PolicyFiles(files),
            Line::JobStart(JobStart::default()),
            Line::EpisodeStart(EpisodeStart::default()),
            episode(0),
            Line::EnvLost(Box::new(lost)),
            episode(1),
            Line::JobEnd(JobEnd::default()),
            Line::RankEnd(RankEnd::default()),
        ]
    }

    /// What a rank that is killed, or a machine that loses power, may leave behind the last whole line: no line end.
    fn any_tail() -> impl Strategy<Value = Vec<u8>> {
        let garbage = proptest::collection::vec(any::<u8>().prop_filter("no line end", |byte| *byte != b'\n'), 0..60);
        prop_oneof![Just(Vec::new()), (1usize..5000).prop_map(|hole| vec![0; hole]), garbage]
    }

    #[test]
    fn a_journal_cut_at_any_byte_keeps_its_whole_lines_and_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal_rank0.jsonl");
        let mut journal = Journal::open(&path).unwrap();
        life().iter().for_each(|line| journal.append(line).unwrap());
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for cut in 0..=bytes.len() {
            let tail = any_tail().new_tree(&mut runner).unwrap().current();
            let whole = bytes[..cut].iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
            std::fs::write(&path, [&bytes[..cut], &tail].concat()).unwrap();
            let mut journal = Journal::open(&path).unwrap();
            assert_eq!(journal.torn() as usize, cut - whole + tail.len(), "{cut}");
            // Without waiting for the disk, as there are more than a thousand.
            journal.note(&episode(9)).unwrap();
            drop(journal);
            let count = bytes[..whole].iter().filter(|byte| **byte == b'\n').count();
            let lines = life().into_iter().take(count).chain([episode(9)]).collect();
            let found = parse(&std::fs::read(&path).unwrap());
            assert_eq!(found, Contents { lines, ..Contents::default() }, "{cut}");
        }
    }

    #[test]
    fn the_first_life_of_a_rank_is_found_without_reading_on() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(first_rank(dir.path()).unwrap(), None);
        std::fs::write(dir.path().join("journal_rank0.jsonl"), b"{\"type\":\"ra").unwrap();
        let mut journal = Journal::open(&dir.path().join("journal_rank1.jsonl")).unwrap();
        let start = RankStart { rank: 1, threads: Some(7), ..RankStart::default() };
        journal.append(&Line::Rank(start.clone())).unwrap();
        journal.append(&episode(0)).unwrap();
        assert_eq!(first_rank(dir.path()).unwrap(), Some(start));
    }

    #[test]
    fn a_folder_is_begun_when_a_journal_has_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!begun(dir.path()).unwrap() && !begun(&dir.path().join("none")).unwrap());
        for (text, is_begun) in [("", false), ("{\"type\":", false), ("\n\n{", false), ("\nrubbish\n{", true)] {
            std::fs::write(dir.path().join("journal_rank0.jsonl"), text).unwrap();
            assert_eq!(begun(dir.path()).unwrap(), is_begun, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_something(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let contents = parse(&bytes);
            prop_assert!(contents.torn <= bytes.len() as u64);
        }

        #[test]
        fn a_damaged_line_is_named_and_costs_no_other(at in 0usize..9, damage in any_tail()) {
            let lines = life();
            let mut bytes = Vec::new();
            for (index, line) in lines.iter().enumerate() {
                let text = serde_json::to_vec(line).unwrap();
                bytes.extend(if index == at { damage.clone() } else { text });
                bytes.push(b'\n');
            }
            let contents = parse(&bytes);
            let others = lines.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, line)| line.clone());
            prop_assert_eq!(contents.lines, others.collect::<Vec<_>>());
            prop_assert_eq!(contents.damaged, if damage.is_empty() { vec![] } else { vec![at + 1] });
            prop_assert_eq!(contents.torn, 0);
        }
    }
}
