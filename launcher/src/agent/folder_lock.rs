//! The run folder of an evaluation, which a launch takes before it starts a rank.

use std::cell::{Cell, OnceCell};
use std::future::pending;
use std::time::Duration;

use jobs::launch::{LaunchLock, LockError};
use jobs::layout::RunFolder;
use tokio::time::sleep;

use crate::plan::Plan;
use crate::say;

/// Between two looks whether the lock is still there.
const LOOK: Duration = Duration::from_secs(5);

/// The run folder of a launch and its lock, once that is taken. Held until it is dropped.
#[derive(Debug)]
pub struct FolderLock {
    folder: Option<RunFolder>,
    lock: OnceCell<LaunchLock>,
    /// [`FolderLock::lost`] has returned.
    is_told_lost: Cell<bool>,
}

impl FolderLock {
    /// For `plan`; takes nothing yet. What is no evaluation of ours has no run folder.
    pub fn new(plan: &Plan) -> FolderLock {
        let folder = plan.eval.as_ref().map(|eval| RunFolder::new(&eval.output));
        FolderLock { folder, lock: OnceCell::new(), is_told_lost: Cell::new(false) }
    }

    /// Takes the folder for `launch`, unless this launcher has it.
    ///
    /// # Errors
    /// [`LockError`], naming who has it.
    pub fn take(&self, launch: &str) -> Result<(), LockError> {
        if let (Some(folder), None) = (&self.folder, self.lock.get()) {
            let lock = LaunchLock::take(folder, launch, |text| say::info(text))?;
            // It was empty a moment ago, and nobody else is on this thread.
            let _ = self.lock.set(lock);
        }
        Ok(())
    }

    /// As [`FolderLock::take`], while the loop of the launch goes on: nodes of other launches are watched for a while.
    ///
    /// # Errors
    /// [`LockError`], naming who has it.
    pub async fn take_beside(&self, launch: &str) -> Result<(), LockError> {
        let (Some(folder), None) = (self.folder.clone(), self.lock.get()) else { return Ok(()) };
        let launch = launch.to_owned();
        let taken = tokio::task::spawn_blocking(move || LaunchLock::take(&folder, &launch, |text| say::info(text)));
        match taken.await {
            Ok(taken) => drop(self.lock.set(taken?)),
            Err(err) => std::panic::resume_unwind(err.into_panic()),
        }
        Ok(())
    }

    /// Returns when another launch has taken this one for dead; once.
    pub async fn lost(&self) {
        let Some(lock) = self.lock.get().filter(|_| !self.is_told_lost.get()) else { return pending().await };
        while !lock.is_lost() {
            sleep(LOOK).await;
        }
        self.is_told_lost.set(true);
    }

    /// The launch that has the folder, if that is this one.
    pub fn launch(&self) -> Option<&str> {
        self.lock.get().map(LaunchLock::launch)
    }
}
