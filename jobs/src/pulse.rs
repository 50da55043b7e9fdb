//! The sign of life of a rank of `eval` for the launcher of its node: how far it is.
//!
//! ```text
//! launcher ── RRUN_PULSE_FILE ──► rank
//! launcher ◄── the file, a line ── rank, about once a second
//! ```
//! CPU time does not tell a rank that works from one that loops for ever; its progress does. The
//! file has always the same size and is written in place, so that it costs one system call.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files;

/// The environment variable with the path of the file. Only ranks that are watched have it.
pub const PULSE_VARIABLE: &str = "RRUN_PULSE_FILE";

/// Size of the file in bytes.
const SIZE: usize = 1024;

/// Characters of a job's name that are kept; escaped they have at most six bytes each.
const MAX_NAME: usize = 100;

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
        text.resize(SIZE - 1, b' ');
        text.push(b'\n');
        file.write_all_at(&text, 0)
    }

    /// Reads the pulse of the process `pid`; `None` if there is none, or only a part of it has been
    /// written.
    pub fn read(path: &Path, pid: u32) -> Option<Self> {
        let text = files::read(path, SIZE as u64).ok()?;
        let pulse: Self = serde_json::from_slice(&text).ok()?;
        (pulse.pid == pid).then_some(pulse)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
