//! The record of a later start of a run, and how a rank opens its journal.

use std::io::ErrorKind;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::journal::Journal;
use crate::launch::PlanLock;
use crate::layout::RunFolder;
use crate::patience;
use crate::plan::difference::Difference;
use crate::plan::git::Git;
use crate::plan::settle::in_use;
use crate::plan::{RunPlan, unusable};
use crate::rank_env::RankEnv;
use crate::refusal::Refusal;
use crate::time::rfc3339;

/// A start of a run after its first one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// When the run was started, RFC 3339 in UTC.
    pub at: String,
    /// Command line of rank 0.
    pub argv: Vec<String>,
    /// Number of ranks of this start.
    pub world_size: usize,
    /// What has changed since the previous start, one line each.
    pub changed: Vec<String>,
    /// State of the folder that the run was started in, if that folder is under git.
    pub git: Option<Git>,
}

impl RunPlan {
    /// Opens the journal of a rank. Rank 0 records in the plan that the run was started again,
    /// unless this is a rank restart within one launch.
    ///
    /// # Errors
    /// Refuses a journal that another process has open, a folder that has another plan by now, and
    /// the errors of the file system.
    pub fn open_journal(&mut self, folder: &RunFolder, env: &RankEnv) -> Result<Journal, Refusal> {
        let io = unusable(folder);
        let is_first = env.rank == 0 && env.restart_count == 0;
        let lock = if is_first {
            PlanLock::to_change(folder)
        } else {
            PlanLock::to_look(folder)
        };
        let _lock = lock.map_err(&io)?;
        let mut opened = Journal::open(&folder.journal(env.rank));
        patience::wait_for(|| {
            if is_busy(&opened) {
                opened = Journal::open(&folder.journal(env.rank));
            }
            !is_busy(&opened)
        });
        let is_busy = is_busy(&opened);
        let journal = opened.map_err(|err| if is_busy { in_use(folder) } else { io(err) })?;
        let found = Self::read(folder)?;
        let difference = Difference::between(&found, self);
        if !difference.is_none() || difference.is_reordered() {
            return Err(Refusal::new(format_args!(
                "the plan of `{}` was changed by another evaluation while this one started",
                folder.root().display()
            )));
        }
        let is_again = journal.was_begun() || !found.changed.is_empty();
        if is_first && !self.knows_its_lines() && !is_again {
            self.write(folder).map_err(&io)?;
        }
        if is_first && is_again {
            self.changed.clear();
            self.resumed_from = found.resumed_from;
            self.resumed_from.push(Resumed {
                at: rfc3339(SystemTime::now()),
                argv: std::env::args().collect(),
                world_size: env.world_size,
                changed: found.changed,
                git: self.ask_git(),
            });
            self.write(folder).map_err(&io)?;
        }
        let stamps = self.stamps(env.launch.as_deref());
        Ok(journal.stamped(stamps))
    }
}

fn is_busy(opened: &std::io::Result<Journal>) -> bool {
    opened
        .as_ref()
        .is_err_and(|err| err.kind() == ErrorKind::ResourceBusy)
}
