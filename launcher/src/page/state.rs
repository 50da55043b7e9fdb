//! What the page shows, with a number that grows with each change.
//!
//! ```text
//! head 7 │ now 9 │ success 4 │ …      a browser that has seen 5 gets head and now
//! ```
//! A browser that is slow misses the states between, never the newest one. One that names a number of
//! another server gets everything. One with the token may send commands to the ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use jobs::layout::RunFolder;
use jobs::live::Commands;
use jobs::plan::RunPlan;
use jobs::time::now;
use report::page::live::{self, Fragment};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::page::access::Access;
use crate::plan::server::PagePlan;
use crate::say;

/// Somebody who has asked within this time looks at the page; an answer takes less, see `http`.
const LOOKS_ON: Duration = Duration::from_secs(5);

/// What the tasks of the page share.
#[derive(Debug)]
pub(super) struct PageState {
    /// Who may see the page.
    pub(super) access: Access,
    /// The run folder.
    pub(super) folder: RunFolder,
    /// Id of the launch, to which commands belong.
    pub(super) launch: String,
    /// Whether clients may send commands: only those with the token see the page.
    pub(super) has_buttons: bool,
    /// The commands so far. The lock is held while they are read, changed and written, so that none
    /// is lost.
    commands: Mutex<Commands>,
    newest: Mutex<Newest>,
    /// When somebody asked last, which wakes the one who looks at the run folder.
    asked: watch::Sender<Option<Instant>>,
    /// Number of looks so far.
    looks: watch::Sender<u64>,
}

/// The newest state.
#[derive(Debug, Default)]
pub(super) struct Newest {
    /// What tells the numbers of this server from those of another one.
    epoch: String,
    version: u64,
    /// The fragments, in the order of the page, each with the number of its last change.
    parts: Vec<(u64, Fragment)>,
    /// Versions of the pictures by environment, with the number of their last change.
    pictures: (u64, BTreeMap<String, String>),
    title: String,
    zone: String,
    files: Arc<NamedFiles>,
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
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Title of the run.
    pub(super) title: String,
    /// Name of the zone of all times.
    pub(super) zone: String,
    /// Those fragments that may have changed.
    pub(super) fragments: Vec<Fragment>,
    /// Versions of the pictures by environment.
    pub(super) pictures: BTreeMap<String, String>,
    /// The files that the journals name; `None` if they are as before.
    pub(super) files: Option<NamedFiles>,
}

impl PageState {
    pub(super) fn new(plan: &PagePlan, folder: &Path, launch: &str) -> Self {
        let folder = RunFolder::new(folder);
        let epoch = jobs::launch::fresh_id().unwrap_or_else(|_| launch.to_owned());
        let newest = Newest {
            epoch,
            ..Newest::default()
        };
        Self {
            access: Access::new(plan.token.as_ref()),
            launch: launch.to_owned(),
            has_buttons: plan.token.is_some(),
            commands: Mutex::new(Commands::read(&folder, launch)),
            folder,
            newest: Mutex::new(newest),
            asked: watch::Sender::new(None),
            looks: watch::Sender::new(0),
        }
    }

    /// Removes the pictures of earlier launches, so that none of them is taken for a new one.
    pub(super) fn clear_folder(&self) {
        let entries = std::fs::read_dir(self.folder.live());
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().and_then(jobs::live::picture_of).is_some() {
                // A picture that stays is shown until there is a newer one.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Remembers that somebody asks now, and returns the number of looks so far, to be waited on.
    pub(super) fn asked(&self) -> watch::Receiver<u64> {
        self.asked.send_replace(Some(now()));
        self.looks.subscribe()
    }

    /// Returns whether somebody looks at the page.
    pub(super) fn is_looked_at(&self) -> bool {
        is_recent(&self.asked.borrow())
    }

    /// Waits until somebody looks at the page.
    pub(super) async fn somebody(&self) {
        // The sender is there as long as this is.
        let _ = self.asked.subscribe().wait_for(is_recent).await;
    }

    /// Shows what was found in the run folder, or why nothing was; then what was shown stays.
    pub(super) fn show(&self, look: Result<Look, String>) {
        match look {
            Ok(look) => self.newest().put(look),
            Err(reason) => {
                tracing::debug!(%reason, "the page is not up to date");
                self.newest().error = Some(reason);
            }
        }
        self.looks.send_modify(|number| *number += 1);
    }

    pub(super) fn newest(&self) -> MutexGuard<'_, Newest> {
        lock(&self.newest)
    }

    pub(super) fn commands(&self) -> MutexGuard<'_, Commands> {
        lock(&self.commands)
    }
}

fn is_recent(asked: &Option<Instant>) -> bool {
    asked.is_some_and(|at| at.elapsed() < LOOKS_ON)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Newest {
    /// Takes a look; fragments that are new come last.
    fn put(&mut self, look: Look) {
        let next = self.version + 1;
        for fragment in look.fragments {
            let mut known = self.parts.iter_mut();
            match known.find(|(_, part)| part.id == fragment.id) {
                Some((_, part)) if *part == fragment => continue,
                Some(part) => *part = (next, fragment),
                None => self.parts.push((next, fragment)),
            }
            self.version = next;
        }
        if self.pictures.1 != look.pictures {
            self.version += 1;
            self.pictures = (self.version, look.pictures);
        }
        (self.title, self.zone) = (look.title, look.zone);
        self.error = None;
        if let Some(files) = look.files {
            self.files = Arc::new(files);
        }
    }

    /// Returns the number that a browser names; 0 if it is one of another server.
    fn number(&self, seen: &str) -> u64 {
        let number = seen
            .strip_prefix(&self.epoch)
            .and_then(|rest| rest.strip_prefix('-')?.parse().ok());
        number.filter(|number| *number <= self.version).unwrap_or(0)
    }

    /// Returns whether something has changed since the number `seen`.
    pub(super) fn is_newer(&self, seen: &str) -> bool {
        self.version > self.number(seen)
    }

    /// Returns what has changed since the number `seen`, as a browser names it.
    pub(super) fn since(&self, seen: &str) -> Value {
        let seen = self.number(seen);
        let parts = self.parts.iter().filter(|(version, _)| *version > seen);
        let parts = parts.map(|(_, part)| json!({"id": part.id, "html": part.html}));
        let (version, pictures) = &self.pictures;
        json!({
            "seen": format!("{}-{}", self.epoch, self.version),
            "parts": parts.collect::<Vec<_>>(),
            "pictures": (*version > seen).then_some(pictures),
        })
    }

    /// Returns the page; `None` as long as there is nothing to show, and an error if there will not
    /// be.
    pub(super) fn document(&self) -> Option<Result<String, String>> {
        if self.parts.is_empty() {
            return self.error.clone().map(Err);
        }
        let parts: Vec<_> = self.parts.iter().map(|(_, part)| part.clone()).collect();
        // The pictures are not in the page, so whoever has it still has to ask for them.
        let seen = match &self.pictures {
            (_, pictures) if pictures.is_empty() => self.version,
            (version, _) => version - 1,
        };
        let seen = format!("{}-{seen}", self.epoch);
        Some(Ok(live::document(&self.title, &self.zone, &seen, &parts)))
    }

    /// Returns the files that the journals name.
    pub(super) fn files(&self) -> Arc<NamedFiles> {
        Arc::clone(&self.files)
    }
}

/// What a browser asks for: `{"command": "skip", "job": "reach"}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
enum Asked {
    /// Begin no more episodes, and end the run.
    Stop,
    /// Begin no more episodes of a job.
    Skip {
        /// Its name.
        job: String,
    },
}

/// Passes a command on to the ranks: adds it to those so far, in the file that they read.
pub(super) fn obey(body: &[u8], page: &PageState) -> anyhow::Result<()> {
    let asked = serde_json::from_slice(body).map_err(|err| anyhow!("this is no command: {err}"))?;
    let plan = RunPlan::read(&page.folder)?;
    let mut commands = page.commands();
    let mut all = commands.clone();
    all.launch.clone_from(&page.launch);
    let said = match asked {
        Asked::Stop => {
            all.stop = true;
            "page: no more episodes begin; the run ends after those that run".to_owned()
        }
        Asked::Skip { job: name } => {
            let job = plan.jobs.iter().find(|job| job.name == name);
            let job = job.with_context(|| format!("the run has no job `{name}`"))?;
            all.skip.insert(job.index);
            format!("page: no more episodes of {name} begin")
        }
    };
    all.write(&page.folder)
        .context("the command cannot be written for the ranks")?;
    *commands = all;
    say::info(said);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use jobs::layout::write_whole;

    use super::*;

    fn look(parts: &[(&'static str, &str)]) -> Look {
        let fragment = |(id, html): &(&'static str, &str)| Fragment {
            id,
            short: "",
            name: "",
            html: (*html).to_owned(),
        };
        Look {
            fragments: parts.iter().map(fragment).collect(),
            ..Look::default()
        }
    }

    /// What is shown after these looks.
    fn shown(looks: Vec<Look>) -> Newest {
        let mut newest = Newest {
            epoch: "e".to_owned(),
            ..Newest::default()
        };
        looks.into_iter().for_each(|look| newest.put(look));
        newest
    }

    fn first() -> Look {
        look(&[("a", "1"), ("b", "1"), ("c", "1")])
    }

    #[test]
    fn who_is_new_gets_everything_in_order() {
        let parts = ["a", "b", "c"].map(|id| json!({"id": id, "html": "1"}));
        let all = json!({"seen": "e-1", "parts": parts, "pictures": null});
        let newest = shown(vec![first()]);
        for foreign in ["", "f-1", "e-", "e-x", "e-99", "e1", "-1"] {
            assert_eq!(newest.since(foreign), all, "{foreign}");
        }
    }

    #[test]
    fn who_is_slow_gets_the_newest_state_alone() {
        let changes = ["2", "3", "4"].map(|text| look(&[("b", text), ("a", "1")]));
        let newest = shown([first()].into_iter().chain(changes).collect());
        let parts = json!([{"id": "b", "html": "4"}]);
        let changed = json!({"seen": "e-4", "parts": parts, "pictures": null});
        assert_eq!(newest.since("e-1"), changed);
    }

    #[test]
    fn what_has_not_changed_is_not_sent_again() {
        let with_picture = || Look {
            pictures: [("0/1".to_owned(), "7".to_owned())].into(),
            ..first()
        };
        let newest = shown(vec![first(), with_picture(), with_picture()]);
        let picture = json!({"seen": "e-2", "parts": [], "pictures": {"0/1": "7"}});
        assert_eq!(newest.since("e-1"), picture);
        let nothing = json!({"seen": "e-2", "parts": [], "pictures": null});
        assert_eq!(newest.since("e-2"), nothing);
    }

    const BROWSERS: usize = 16;

    /// A run with a job for each browser.
    fn page() -> (tempfile::TempDir, PageState) {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let jobs = (0..BROWSERS).map(|index| json!({"name": format!("job{index}")}));
        let plan = RunPlan {
            schema: "rrun/plan/4".to_owned(),
            world_size: 1,
            jobs: jobs::samples::jobs(jobs),
            ..RunPlan::default()
        };
        write_whole(&folder.plan(), &serde_json::to_vec(&plan).unwrap()).unwrap();
        std::fs::create_dir(folder.live()).unwrap();
        let plan = PagePlan::new(([127, 0, 0, 1], 0).into(), Some("s3cret-and-long")).unwrap();
        let state = PageState::new(&plan, dir.path(), "0a1b");
        (dir, state)
    }

    #[test]
    fn commands_that_come_at_once_are_all_obeyed() {
        let (_dir, page) = page();
        let all_there = Barrier::new(BROWSERS);
        let press = |index: usize| {
            let body = json!({"command": "skip", "job": format!("job{index}")}).to_string();
            all_there.wait();
            obey(body.as_bytes(), &page).unwrap();
        };
        std::thread::scope(|browsers| {
            for index in 0..BROWSERS {
                let press = &press;
                browsers.spawn(move || press(index));
            }
        });
        obey(br#"{"command": "stop"}"#, &page).unwrap();
        let read = Commands::read(&page.folder, "0a1b");
        assert_eq!((read.skip.len(), read.stop), (BROWSERS, true));
        assert_eq!(page.commands().skip.len(), BROWSERS);
    }

    #[test]
    fn what_is_no_command_is_refused_with_its_reason() {
        let (_dir, page) = page();
        for (body, reason) in [
            ("", "this is no command: "),
            ("{}", "this is no command: "),
            ("[]", "this is no command: "),
            (r#"{"command": "kill"}"#, "this is no command: "),
            (r#"{"command": "skip"}"#, "this is no command: "),
            (
                r#"{"command": "skip", "job": "c"}"#,
                "the run has no job `c`",
            ),
        ] {
            let err = obey(body.as_bytes(), &page).unwrap_err().to_string();
            assert!(err.starts_with(reason), "{body}: {err}");
        }
    }
}
