//! The lock on the run folder of an evaluation, which a launch takes before it starts a rank.

use std::future::{Future, pending};
use std::time::Duration;

use jobs::launch::{LaunchLock, LockError};
use jobs::layout::RunFolder;
use tokio::select;
use tokio::time::sleep;

use crate::plan::LaunchPlan;
use crate::say;

/// Interval between two checks that the lock is still in place.
const LOOK: Duration = Duration::from_secs(5);

/// In this time a lock is taken that nobody else has. A launch that is told to end meanwhile keeps
/// it: only the holder writes the report.
const PROMPT: Duration = Duration::from_secs(1);

/// The run folder of a launch and, once taken, its lock. The lock is released on drop.
#[derive(Debug)]
pub struct FolderLock {
    folder: Option<RunFolder>,
    lock: Option<LaunchLock>,
    /// [`FolderLock::lost`] has returned.
    is_told_lost: bool,
}

impl FolderLock {
    /// Returns the lock for `plan`, not yet taken. Only built-in evaluations have a run folder.
    pub fn new(plan: &LaunchPlan) -> FolderLock {
        let folder = plan.eval.as_ref().map(|eval| RunFolder::new(&eval.output));
        FolderLock {
            folder,
            lock: None,
            is_told_lost: false,
        }
    }

    /// Locks the folder for `launch`, unless this launcher already holds the lock. That may take a
    /// while, because another launch may have to be watched for signs of life; `end` ends the wait,
    /// and what it returns is returned.
    ///
    /// # Errors
    /// Returns [`LockError`] with the name of the holder if another launch holds the lock.
    pub async fn take_unless<T>(
        &mut self,
        launch: &str,
        end: impl Future<Output = T>,
    ) -> Result<Option<T>, LockError> {
        let end = async {
            sleep(PROMPT).await;
            end.await
        };
        select! {
            biased;
            taken = self.take(launch) => taken.map(|()| None),
            ended = end => Ok(Some(ended)),
        }
    }

    async fn take(&mut self, launch: &str) -> Result<(), LockError> {
        let (Some(folder), None) = (self.folder.clone(), &self.lock) else {
            return Ok(());
        };
        let launch = launch.to_owned();
        let take = move || LaunchLock::take(&folder, &launch, |text| say::info(text));
        match tokio::task::spawn_blocking(take).await {
            Ok(taken) => self.lock = Some(taken?),
            Err(err) => std::panic::resume_unwind(err.into_panic()),
        }
        Ok(())
    }

    /// Returns when another launch has taken this one for dead; once.
    pub async fn lost(&mut self) {
        let Some(lock) = self.lock.as_ref().filter(|_| !self.is_told_lost) else {
            return pending().await;
        };
        while !lock.is_lost() {
            sleep(LOOK).await;
        }
        self.is_told_lost = true;
    }

    /// Returns the id of the launch that holds the lock, if it is this one.
    pub fn launch(&self) -> Option<&str> {
        self.lock.as_ref().map(LaunchLock::launch)
    }
}
