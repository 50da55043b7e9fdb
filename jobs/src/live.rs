//! What the page of a run (`rrun eval --page`), its ranks and their launchers tell each other while
//! it lasts: files of the folder `live` in the run folder, which all nodes see, and one that a
//! launcher makes for each rank of its node.
//!
//! ```text
//! rank ── live/rank<r>_env<i>.png ──► page     the newest picture of an environment
//! page ── live/commands.json ───────► ranks    begin no more episodes, of all jobs or of some
//! rank ── the file of its pulse ────► launcher how far it is, about once a second
//! ```
//! The launcher sets [`PAGE_VARIABLE`] for its ranks if there is a page, and [`PULSE_VARIABLE`] if
//! it watches them. Without these they write and read nothing.
//!
//! CPU time does not tell a rank that works from one that loops for ever; its progress does. The
//! file of a pulse has always the same size and is written in place, so that it costs one system
//! call.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files;
use crate::job::JobIndex;
use crate::layout::{RunFolder, replace};

/// The variable by which ranks know that there is a page.
pub const PAGE_VARIABLE: &str = "RRUN_LIVE_PAGE";

/// The variable with the token that a browser has to show.
pub const PAGE_TOKEN_VARIABLE: &str = "RRUN_PAGE_TOKEN";

/// Maximum size of the commands in bytes: the numbers of a hundred thousand jobs.
const MOST_BYTES: u64 = 1 << 20;

/// The environment variable with the path of the file. Only ranks that are watched have it.
pub const PULSE_VARIABLE: &str = "RRUN_PULSE_FILE";

/// Size of the file of a pulse in bytes.
const PULSE_BYTES: usize = 1024;

/// Characters of a job's name that are kept; escaped they have at most six bytes each.
const MAX_NAME: usize = 100;

/// What a user has asked of the ranks of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commands {
    /// Id of the launch. The next one begins without commands.
    pub launch: String,
    /// Begin no more episodes, of any job.
    pub stop: bool,
    /// Begin no more episodes of these jobs.
    pub skip: BTreeSet<JobIndex>,
}

impl Commands {
    /// Reads the commands for a launch; there are none if the file is missing, damaged, or for
    /// another launch.
    pub fn read(folder: &RunFolder, launch: &str) -> Self {
        let own = Self::found(folder).filter(|commands| commands.launch == launch);
        own.unwrap_or_else(|| Self {
            launch: launch.to_owned(),
            ..Self::default()
        })
    }

    /// Reads the last commands in a run folder, for whichever launch they are; `None` if the file is
    /// missing or damaged.
    pub fn found(folder: &RunFolder) -> Option<Self> {
        files::read_json(&folder.commands(), MOST_BYTES).ok()
    }

    /// Replaces the commands in a run folder.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn write(&self, folder: &RunFolder) -> io::Result<()> {
        std::fs::create_dir_all(folder.live())?;
        let text = serde_json::to_vec(self)?;
        replace(&folder.commands(), |file| io::Write::write_all(file, &text))
    }

    /// Returns whether episodes of this job may begin.
    pub fn allows(&self, job: JobIndex) -> bool {
        !self.stop && !self.skip.contains(&job)
    }
}

/// Returns rank and environment of the name of a picture.
pub fn picture_of(name: &str) -> Option<(usize, usize)> {
    let (rank, env) = name
        .strip_prefix("rank")?
        .strip_suffix(".png")?
        .split_once("_env")?;
    Some((rank.parse().ok()?, env.parse().ok()?))
}

/// How far a rank is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pulse {
    /// The process. The file may have been written by an earlier start of the rank.
    pub pid: u32,
    /// A number that changes whenever the rank makes progress.
    pub progress: u64,
    /// What it is at.
    pub phase: RankPhase,
    /// Name of the job.
    pub job: String,
    /// Environment steps so far, of all jobs.
    pub steps: u64,
}

/// What a rank is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RankPhase {
    /// It loads a policy, builds environments or closes files. How far it is, is not known.
    #[default]
    Preparing,
    /// Its environments and its policy have begun to answer, and each answer is progress.
    Stepping,
    /// It waits for the other ranks. Being awake is progress.
    Waiting,
}

impl Pulse {
    /// Writes the pulse into its file.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn write(&self, file: &File) -> io::Result<()> {
        let short = Self {
            job: self.job.chars().take(MAX_NAME).collect(),
            ..self.clone()
        };
        let mut text = serde_json::to_vec(&short)?;
        text.resize(PULSE_BYTES - 1, b' ');
        text.push(b'\n');
        file.write_all_at(&text, 0)
    }

    /// Reads the pulse of the process `pid`; `None` if there is none, or only a part of it has been
    /// written.
    pub fn read(path: &Path, pid: u32) -> Option<Self> {
        let pulse: Self = files::read_json(path, PULSE_BYTES as u64).ok()?;
        (pulse.pid == pid).then_some(pulse)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commands_are_for_one_launch() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let none = Commands::read(&folder, "a");
        assert!(none.allows(JobIndex(0)));
        let commands = Commands {
            launch: "a".to_owned(),
            skip: BTreeSet::from([JobIndex(1)]),
            ..Commands::default()
        };
        commands.write(&folder).unwrap();
        let found = Commands::read(&folder, "a");
        assert!(found.allows(JobIndex(0)));
        assert!(!found.allows(JobIndex(1)));
        assert!(Commands::read(&folder, "b").allows(JobIndex(1)));
        let all = Commands {
            stop: true,
            ..commands
        };
        assert!(!all.allows(JobIndex(0)));
    }

    #[test]
    fn what_is_no_commands_asks_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        std::fs::create_dir(folder.live()).unwrap();
        for text in ["", "{", "{\"launch\":7}", "[]"] {
            std::fs::write(folder.commands(), text).unwrap();
            assert!(!Commands::read(&folder, "a").stop, "{text}");
        }
    }

    #[test]
    fn a_picture_is_named_after_its_environment() {
        let path = RunFolder::new(std::path::Path::new("out")).picture(3, 12);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(picture_of(name), Some((3, 12)));
        for name in [
            "rank3_env12.png.tmp",
            "rank_env1.png",
            "rank1_env-1.png",
            "x",
        ] {
            assert_eq!(picture_of(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_pulse_is_read_as_it_was_written_whatever_the_job_is_called(
            job in ".{0,300}",
            progress: u64,
            steps: u64,
        ) {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("pulse");
            let pulse = Pulse { pid: 7, progress, phase: RankPhase::Stepping, job, steps };
            let file = File::create(&path).expect("made");
            pulse.write(&file).expect("written");
            let shorter = Pulse { job: "a".to_owned(), ..pulse.clone() };
            let read = Pulse::read(&path, 7).expect("it is whole");
            prop_assert_eq!(&read.job, &pulse.job.chars().take(MAX_NAME).collect::<String>());
            prop_assert_eq!((read.progress, read.steps), (progress, steps));
            shorter.write(&file).expect("written");
            prop_assert_eq!(Pulse::read(&path, 7), Some(shorter));
        }
    }

    #[test]
    fn the_pulse_of_an_earlier_start_is_not_that_of_this_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pulse");
        assert_eq!(Pulse::read(&path, 7), None);
        let pulse = Pulse {
            pid: 7,
            ..Pulse::default()
        };
        pulse
            .write(&File::create(&path).expect("made"))
            .expect("written");
        assert_eq!(Pulse::read(&path, 8), None);
        assert_eq!(Pulse::read(&path, 7), Some(pulse));
    }

    #[test]
    fn half_a_pulse_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pulse");
        std::fs::write(&path, r#"{"pid":7,"progress":1,"phase":"step"#).expect("written");
        assert_eq!(Pulse::read(&path, 7), None);
    }
}
