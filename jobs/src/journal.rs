//! The journal: one JSON line for everything that happened in a rank, synced when it is written.
//!
//! It only grows. A line that a crash tore is the last one, has no line end, and is cut off by the next writer; what
//! it was about happens again. Report and resume are functions of plan and journals and of nothing else.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::episode::Episode;
use crate::job::JobIndex;
use crate::placement::Share;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// A rank began, or began again.
    Rank(RankStart),
    /// A job began.
    JobStart(JobStart),
    /// An episode began.
    EpisodeStart(EpisodeStart),
    /// An episode ended.
    Episode(Box<Episode>),
    /// The process of an environment was lost.
    EnvLost(Box<EnvLost>),
    /// A job ended.
    JobEnd(JobEnd),
    /// A rank has nothing left to do.
    RankEnd(RankEnd),
    /// What policies are made of.
    PolicyFiles(PolicyFiles),
}

/// A rank began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankStart {
    /// Which.
    pub rank: usize,
    /// Of how many.
    pub world_size: usize,
    /// `TORCHELASTIC_RESTART_COUNT`.
    pub restart: u32,
    /// Which meeting of ranks this is, see [`crate::rank_env::RankEnv::round`].
    #[serde(default)]
    pub round: u32,
    /// `GROUP_RANK`.
    #[serde(default)]
    pub node: usize,
    /// `LOCAL_RANK`.
    #[serde(default)]
    pub local_rank: Option<usize>,
    /// Process.
    #[serde(default)]
    pub pid: u32,
    /// The GPU that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// Name and version of what takes part: `rrun`, `libtorch`, `cuda`, `nccl`, `driver`, `mujoco`.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// Machine.
    pub host: String,
    /// `cpu`, `cuda:1`.
    pub device: String,
    /// Why that one.
    pub device_reason: String,
    /// UTC.
    pub started: String,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// As CUDA counts the visible ones.
    pub index: usize,
    /// As its maker calls it.
    pub name: String,
    /// Of its memory.
    pub bytes: u64,
    /// `GPU-…`.
    #[serde(default)]
    pub uuid: String,
}

/// An episode began in a rank: who was under way when a rank died. Not synced, as only a machine that loses power forgets
/// it, and that is not the episode's doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodeStart {
    /// Of this job.
    pub job_index: JobIndex,
    /// Number within the job.
    pub episode: u64,
    /// Where.
    pub rank: usize,
    /// Copy of the environment within the rank.
    pub env: usize,
    /// No other episode was under way, because this one is suspected of having killed its rank before.
    #[serde(default)]
    pub alone: bool,
    /// UTC.
    pub started: String,
}

/// What policies are made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFiles {
    /// Policy type as the jobs name it.
    pub policy_type: String,
    /// File or folder as the jobs name it.
    pub path: String,
    /// SHA-256 of the file; of a folder that of the lines `<sha256>  <name>` of its files by name, as sha256sum prints
    /// them.
    pub sha256: String,
    /// Bytes in all.
    pub bytes: u64,
    /// UTC, when they were read.
    pub at: String,
}

/// A job began in a rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobStart {
    /// Which.
    pub job_index: JobIndex,
    /// Where.
    pub rank: usize,
    /// Episodes in all, when it is not the length in steps that ends it.
    pub episodes: Option<u64>,
    /// Environments that the rank has of a shared job; of another it has them all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// How often the job has failed in this rank before.
    #[serde(default)]
    pub attempt: u32,
    /// What was in effect: `chunk_length`, `action_horizon`, `dtype`, `device`, `max_batch`, `pipeline_stages`,
    /// `num_envs`, `seed`, `policy_path` and what else the policy says of itself.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
    /// UTC.
    pub started: String,
}

/// The process of an environment was lost, and with it the episode that it was in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvLost {
    /// Of this job.
    pub job_index: JobIndex,
    /// In this rank.
    pub rank: usize,
    /// Which environment of it.
    pub env: usize,
    /// The episode that begins again, or is an error.
    pub episode: u64,
    /// Steps that it had taken.
    pub step: u64,
    /// How often this happened to the episode, this time included.
    pub attempt: u32,
    /// What happened.
    pub reason: String,
    /// The last lines of the process.
    pub stderr: Vec<String>,
    /// UTC.
    pub at: String,
}

/// A job ended in a rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobEnd {
    /// Which.
    pub job_index: JobIndex,
    /// Where.
    pub rank: usize,
    /// Environments that the rank had of a shared job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Why it failed; `None` when it ran to its end.
    pub error: Option<String>,
    /// How often the job has failed in this rank before.
    #[serde(default)]
    pub attempt: u32,
    /// It will be tried again.
    #[serde(default)]
    pub retried: bool,
    /// Where the rank's log is, relative to the run folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Seconds since its start.
    pub wall_s: f64,
    /// Steps of all environments.
    pub env_steps: u64,
    /// Frames rendered for them, all cameras.
    pub frames: u64,
    /// Calls of the policy.
    pub policy_calls: u64,
    /// Seconds in which the policy inferred.
    #[serde(default)]
    pub infer_busy_s: f64,
    /// Seconds in which at least one environment was at work.
    #[serde(default)]
    pub sim_busy_s: f64,
    /// Episodes that began again because the process of their environment was lost.
    #[serde(default)]
    pub env_restarts: u64,
    /// How often the loop waited for files.
    #[serde(default)]
    pub record_waits: u64,
    /// Seconds that it waited for them.
    #[serde(default)]
    pub record_wait_s: f64,
    /// Milliseconds of a policy call.
    pub infer_ms: Quantiles,
    /// Milliseconds of a step of all due environments.
    pub sim_ms: Quantiles,
    /// Highest resident memory of the process so far.
    pub peak_rss_bytes: u64,
    /// Most memory of the GPU that libtorch has held at a time; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_vram_bytes: Option<u64>,
    /// UTC.
    pub ended: String,
}

/// Two quantiles of a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median.
    pub p50: Option<f64>,
    /// One in twenty is slower.
    pub p95: Option<f64>,
}

/// A rank has nothing left to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankEnd {
    /// Which.
    pub rank: usize,
    /// Seconds since [`RankStart`].
    pub wall_s: f64,
    /// Of those, in jobs.
    pub busy_s: f64,
    /// A signal ended it early.
    pub stopped: bool,
    /// UTC.
    pub ended: String,
}

/// What a journal file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Whole lines, in order.
    pub lines: Vec<Line>,
    /// Lines that say something else, by number from 1; never written by a crash, so worth a word.
    pub damaged: Vec<usize>,
    /// Bytes of a torn last line.
    pub torn: u64,
}

/// Reads the bytes of a journal. Any bytes are read to something.
pub fn parse(bytes: &[u8]) -> Contents {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
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
    files(folder)?.into_iter().map(|path| std::fs::read(&path).map(|bytes| (path, parse(&bytes)))).collect()
}

/// Whether a process is writing a journal of this folder.
pub fn in_use(folder: &Path) -> bool {
    let journals = read_all(folder).unwrap_or_default();
    let busy = |path: &PathBuf| {
        let file = OpenOptions::new().write(true).open(path);
        file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    };
    journals.iter().any(|(path, _)| busy(path))
}

/// The journal of one rank, open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    begun: u64,
    torn: u64,
}

impl Journal {
    /// Opens or makes a journal for this process alone; a torn last line is cut off.
    ///
    /// # Errors
    /// Those of the file system, and `ResourceBusy` while another process has it open.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // The lock goes with the process, however that ends. A file system without locks has no other guard either.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(io::Error::new(ErrorKind::ResourceBusy, "another evaluation is running in this folder"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let torn = parse(&bytes).torn;
        let begun = bytes.len() as u64 - torn;
        file.set_len(begun)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file, path: path.to_owned(), begun, torn })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::End;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;

    pub(crate) fn episode(number: u64) -> Line {
        Line::Episode(Box::new(Episode {
            job: "reach".to_owned(),
            job_index: JobIndex(0),
            episode: number,
            seed: 9,
            rank: 0,
            env: 0,
            rebuild: 0,
            success: Some(true),
            success_at_end: None,
            end: End::Success,
            length: 10,
            return_: 0.1 + 0.2,
            language_instruction: "touch \"it\"\n".to_owned(),
            wall_s: 0.5,
            infer_calls: 2,
            ended: "2026-11-21T10:00:00.000Z".to_owned(),
            error: None,
            dataset: None,
            video: None,
            episode_video: None,
        }))
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
