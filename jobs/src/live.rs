//! What the page of a run (`rrun eval --page`) and its ranks tell each other: files of the folder
//! `live` in the run folder, which all nodes see.
//!
//! ```text
//! rank ── live/rank<r>_env<i>.png ──► page     the newest picture of an environment
//! page ── live/commands.json ───────► ranks    begin no more episodes, of all jobs or of some
//! ```
//! The launcher sets [`PAGE_VARIABLE`] for its ranks if there is a page. Without it they write and
//! read nothing.

use std::collections::BTreeSet;
use std::io;

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
        let text = files::read(&folder.commands(), MOST_BYTES).ok()?;
        serde_json::from_slice(&text).ok()
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

#[cfg(test)]
mod tests {
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
}
