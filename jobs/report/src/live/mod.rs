//! A run that is under way: its report so far, and what happens now.
//!
//! ```text
//! plan.json, journals ──► LiveRun ─┬─► Report      the same as at the end, of what is there
//!   (as far as they     grows with │
//!    were not read yet)    them    └─► Activity    which episode runs where; the recent rate
//! ```
//! A report is a function of plan and journals, so the report of a run that is under way is that
//! function of what they have so far. Only what was appended is read; a line that is looked
//! up for the report is kept. If the plan changes or a journal is replaced, everything is read
//! again.
//!
//! Nothing is written and no rank is asked, so a run can be watched from any machine that sees its
//! folder.

use std::time::{Instant, SystemTime};

use jobs::files::FileVersion;
use jobs::launch::Pulse;
use jobs::layout::RunFolder;
use jobs::live::Commands;
use jobs::plan::RunPlan;
use jobs::refusal::Refusal;
use jobs::time::{Moment, rfc3339};

use crate::merged::Merged;
use crate::merged::scan::PieceScan;
use crate::{Context, Report};

mod activity;
#[cfg(test)]
pub(crate) mod tests;
mod text;
pub(crate) mod view;

pub use activity::{Activity, EnvActivity, RankActivity, RecentRate};
pub use text::{TextSize, frame};
pub use view::LiveView;

/// A run that is watched.
pub struct LiveRun {
    /// The folder of the run.
    pub folder: RunFolder,
    plan_version: FileVersion,
    merged: Merged,
    activity: Activity,
    pulse: Pulse,
    /// What a user has asked on the page of the run.
    commands: Option<Commands>,
    /// Whether the launch that watches its own run has ended, though it still holds the folder.
    has_ended: bool,
}

impl LiveRun {
    /// Reads the plan of a run; journals are read by [`LiveRun::refresh`].
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the plan is missing, damaged, or of another version.
    pub fn open(folder: RunFolder) -> Result<Self, Refusal> {
        let plan_version = FileVersion::of(&folder.plan());
        Ok(Self {
            merged: Merged::unread(RunPlan::read(&folder)?),
            folder,
            plan_version,
            activity: Activity::default(),
            pulse: Pulse::default(),
            commands: None,
            has_ended: false,
        })
    }

    /// Reads what was appended to the journals since the last call. Returns whether there was
    /// anything, or whether the run has ended, gone on, or got a command since.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if plan or journals cannot be read.
    pub fn refresh(&mut self, now: Instant) -> Result<bool, Refusal> {
        let (was_under_way, known) = (self.is_under_way(), self.commands.take());
        let is_same = FileVersion::of(&self.folder.plan()) == self.plan_version;
        let journals = &mut self.merged.journals;
        let continues = is_same && journals.refresh(&self.folder).map_err(Refusal::new)?;
        if !continues {
            let (pulse, has_ended) = (std::mem::take(&mut self.pulse), self.has_ended);
            *self = Self::open(self.folder.clone())?;
            (self.pulse, self.has_ended) = (pulse, has_ended);
            let journals = &mut self.merged.journals;
            journals.refresh(&self.folder).map_err(Refusal::new)?;
        }
        let merged = &mut self.merged;
        let living = self.pulse.look(&self.folder, now);
        merged.journals.note_launches(&living);
        let mut watch = |scan: &PieceScan| self.activity.on(scan);
        let grown = (merged.state).grow(&merged.plan, &merged.journals, Some(&mut watch));
        let has_grown = grown.map_err(Refusal::new)?;
        self.commands = Commands::found(&self.folder);
        let is_as_before = self.is_under_way() == was_under_way && self.commands == known;
        Ok(has_grown || !continues || !is_as_before)
    }

    /// Makes the report of what was read. Lives of ranks that run last until `now`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] with the name of the journal that cannot be read.
    pub fn report(&mut self, now: SystemTime) -> Result<Report, Refusal> {
        let created = rfc3339(now);
        let moment = Moment::parse(&created);
        let merged = &mut self.merged;
        let settled = (merged.state).settle(&merged.plan, &merged.journals, Some(moment));
        settled.map_err(Refusal::new)?;
        let context = Context {
            route: "journals".to_owned(),
            created,
            commands: self.commands.clone(),
            is_over: !self.is_under_way(),
            ..Context::default()
        };
        Report::of(&self.merged, context).map_err(Refusal::new)
    }

    /// Returns the run at a moment, with its report so far.
    pub fn view<'a>(&'a self, report: &'a Report, now: Moment) -> LiveView<'a> {
        LiveView {
            folder: &self.folder,
            plan: &self.merged.plan,
            report,
            activity: &self.activity,
            is_under_way: self.is_under_way(),
            now,
        }
    }

    /// Returns the plan of the run.
    pub fn plan(&self) -> &RunPlan {
        &self.merged.plan
    }

    /// Notes that the launch whose run this is has ended. It may hold the folder for a moment longer.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns whether a launch holds the run folder, on any machine, or a rank writes its journal.
    pub fn is_under_way(&self) -> bool {
        !self.has_ended && self.merged.writer().is_some()
    }
}
