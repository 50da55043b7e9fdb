//! What the tasks of the page share: the newest state, and who looks.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use jobs::layout::RunFolder;
use jobs::live::Commands;
use report::page::live::{self, Fragment};
use tokio::sync::watch;

use crate::page::access::Access;
use crate::page::board::Board;
use crate::page::commands::CommandError;
use crate::plan::page::PagePlan;

/// What the tasks of the page share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Who may see the page.
    pub(super) access: Access,
    /// The run folder.
    pub(super) folder: RunFolder,
    /// Id of the launch, to which commands belong.
    pub(super) launch: String,
    /// Whether clients may send commands: only those with the token see the page.
    pub(super) has_buttons: bool,
    state: Mutex<PageState>,
    /// Held by the one that changes the commands, from reading them until they are written.
    commanding: Mutex<()>,
    /// Grows with every change of the board.
    changed: watch::Sender<u64>,
    /// Number of requests that want the page to be up to date.
    watchers: watch::Sender<usize>,
}

/// The newest state.
#[derive(Debug)]
struct PageState {
    board: Board,
    /// Title of the run.
    title: String,
    /// Name of the zone of all times.
    zone: String,
    files: Arc<NamedFiles>,
    commands: Commands,
    /// Why there is nothing to show.
    error: Option<String>,
}

/// The files that the journals name, which a browser may have.
#[derive(Debug, Default)]
pub(super) struct NamedFiles {
    /// Paths of films and logs, as the journals have them.
    pub(super) names: BTreeSet<String>,
    /// Folders in which they may be.
    pub(super) roots: Vec<PathBuf>,
}

/// What somebody who looked at the run folder has found.
#[derive(Debug)]
pub(super) struct Look {
    /// Title of the run.
    pub(super) title: String,
    /// Name of the zone of all times.
    pub(super) zone: String,
    /// Those fragments that may have changed.
    pub(super) fragments: Vec<Fragment>,
    /// Versions of the pictures, as JSON.
    pub(super) pictures: String,
    /// The files that the journals name; `None` if they are as before.
    pub(super) files: Option<NamedFiles>,
}

impl Shared {
    pub(super) fn new(plan: &PagePlan, folder: &std::path::Path, launch: &str) -> Self {
        let folder = RunFolder::new(folder);
        let epoch = jobs::launch::fresh_id().unwrap_or_else(|_| launch.to_owned());
        let state = PageState {
            board: Board::new(epoch),
            title: String::new(),
            zone: String::new(),
            files: Arc::default(),
            commands: Commands::read(&folder, launch),
            error: None,
        };
        Self {
            access: Access::new(plan.token.as_ref()),
            launch: launch.to_owned(),
            has_buttons: plan.token.is_some(),
            folder,
            state: Mutex::new(state),
            commanding: Mutex::default(),
            changed: watch::Sender::new(0),
            watchers: watch::Sender::new(0),
        }
    }

    /// Removes the pictures of earlier launches, so that none of them is taken for a new one.
    pub(super) fn clear_folder(&self) {
        let entries = std::fs::read_dir(self.folder.live());
        for entry in entries.into_iter().flatten().flatten() {
            if entry
                .file_name()
                .to_str()
                .and_then(jobs::live::picture_of)
                .is_some()
            {
                // A picture that stays is shown until there is a newer one.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Counts a request that wants the page to be up to date, until the result is dropped.
    pub(super) fn watch(self: &Arc<Self>) -> Watcher {
        self.watchers.send_modify(|count| *count += 1);
        Watcher {
            shared: Arc::clone(self),
            changes: self.changed.subscribe(),
        }
    }

    /// Returns the number of those who look, to be waited on.
    pub(super) fn watchers(&self) -> watch::Receiver<usize> {
        self.watchers.subscribe()
    }

    /// Shows what was found in the run folder.
    pub(super) fn show(&self, look: Look) {
        let mut state = self.state();
        let has_changed = state.board.put(look.fragments);
        let has_pictures = state.board.put_pictures(look.pictures);
        (state.title, state.zone) = (look.title, look.zone);
        state.error = None;
        if let Some(files) = look.files {
            state.files = Arc::new(files);
        }
        drop(state);
        if has_changed || has_pictures {
            self.changed.send_modify(|number| *number += 1);
        }
    }

    /// Tells those who wait for the page why there is nothing to show. What was shown stays.
    pub(super) fn fail(&self, reason: String) {
        tracing::debug!(%reason, "the page is not up to date");
        self.state().error = Some(reason);
        self.changed.send_modify(|number| *number += 1);
    }

    /// Returns the page; `None` as long as there is nothing to show, and an error if there will not
    /// be.
    pub(super) fn document(&self) -> Option<Result<String, String>> {
        let state = self.state();
        let fragments = state.board.fragments();
        if fragments.is_empty() {
            return state.error.clone().map(Err);
        }
        let (title, zone) = (state.title.clone(), state.zone.clone());
        let seen = state.board.newest();
        drop(state);
        Some(Ok(live::document(&title, &zone, &seen, &fragments)))
    }

    /// Returns the next event for one who has seen `seen`, with its number.
    pub(super) fn next(&self, seen: u64) -> Option<(u64, Bytes)> {
        self.state().board.next(seen)
    }

    /// Returns the number of an event that a browser names.
    pub(super) fn seen(&self, event: &str) -> u64 {
        self.state().board.seen(event)
    }

    /// Returns the files that the journals name.
    pub(super) fn files(&self) -> Arc<NamedFiles> {
        Arc::clone(&self.state().files)
    }

    /// Returns the commands so far.
    pub(super) fn commands(&self) -> Commands {
        self.state().commands.clone()
    }

    /// Changes the commands by `change`, which also writes them for the ranks: one change after the
    /// other, so that none is lost.
    ///
    /// # Errors
    /// Returns the error of `change`; the commands are then those from before.
    pub(super) fn command(
        &self,
        change: impl FnOnce(Commands) -> Result<Commands, CommandError>,
    ) -> Result<(), CommandError> {
        let _only_one = self
            .commanding
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let commands = change(self.commands())?;
        self.state().commands = commands;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, PageState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who looks at the page.
#[derive(Debug)]
pub(super) struct Watcher {
    /// What is shown.
    pub(super) shared: Arc<Shared>,
    changes: watch::Receiver<u64>,
}

impl Watcher {
    /// Waits for the next change; returns whether there may be more.
    pub(super) async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.watchers.send_modify(|count| *count -= 1);
    }
}
