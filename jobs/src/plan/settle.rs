//! Settles a plan in its run folder: the start begins a run there, continues the run that it finds,
//! or is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::count::counted;
use crate::job::Job;
use crate::journal::{self, Line, Lines};
use crate::launch;
use crate::launch::PlanLock;
use crate::layout::{RunFolder, beside, write_whole};
use crate::plan::difference::{self, Difference};
use crate::plan::supersede;
use crate::plan::{Git, RunPlan, unusable};
use crate::refusal::Refusal;
use crate::{files, random};

impl RunPlan {
    /// Writes the plan into its folder, or continues the run that the folder holds. A continued run
    /// keeps its jobs in their order and takes the new values of everything that does not affect
    /// the results. Ranks and launcher may all call this at once: the first file written counts.
    /// With `accept`, or if no episode has finished, changed jobs replace those of the run, see
    /// [`crate::plan`].
    ///
    /// # Errors
    /// Refuses a folder that holds another run, is in use, or cannot be written; nothing in it was
    /// changed then.
    pub fn settle(self, folder: &RunFolder, accept: bool) -> Result<Self, Refusal> {
        let launch = self.launch.clone();
        let settled = self.settled(folder, accept)?;
        Ok(Self { launch, ..settled })
    }

    fn settled(mut self, folder: &RunFolder, accept: bool) -> Result<Self, Refusal> {
        let io = unusable(folder);
        std::fs::create_dir_all(folder.journals()).map_err(&io)?;
        if !folder.plan().exists() {
            self.begin(folder)?;
        }
        let found = Self::read(folder)?;
        if found.moving.is_none() {
            self.settle_inputs(&found, folder, begun(&folder.journals()));
            if self.renewed(&found).is_as(&found) && Difference::between(&found, &self).is_none() {
                return Ok(found);
            }
        }
        let _lock = PlanLock::to_change(folder).map_err(&io)?;
        self.change(folder, accept)
    }

    /// Writes the first plan of a folder.
    fn begin(&self, folder: &RunFolder) -> Result<(), Refusal> {
        let io = unusable(folder);
        let fresh = self.named(folder)?;
        // A hard link never replaces an existing file, so exactly one of two writers wins.
        let mine = beside(&folder.plan());
        let text = serde_json::to_vec_pretty(&fresh).map_err(|err| io(err.into()))?;
        write_whole(&mine, &text).map_err(&io)?;
        let linked = std::fs::hard_link(&mine, folder.plan());
        std::fs::remove_file(&mine).map_err(&io)?;
        match linked {
            Err(err) if err.kind() != ErrorKind::AlreadyExists => Err(io(err)),
            _ => Ok(()),
        }
    }

    /// Returns the plan with a new run id and the git state of the folder.
    fn named(&self, folder: &RunFolder) -> Result<Self, Refusal> {
        let id = random::hex::<16>().map_err(unusable(folder))?;
        let mut named = Self {
            id,
            git: Git::here(),
            begun_by: self.launch.clone(),
            ..self.clone()
        };
        named.provenance = named.known_by();
        Ok(named)
    }

    /// Continues the run under the lock. The plan in the folder differs from this one, or did a
    /// moment ago, or has left something to move.
    fn change(mut self, folder: &RunFolder, accept: bool) -> Result<Self, Refusal> {
        let io = unusable(folder);
        let found = supersede::finish(folder, Self::read(folder)?).map_err(&io)?;
        self.settle_inputs(&found, folder, begun(&folder.journals()));
        let difference = Difference::between(&found, &self);
        let renewed = self.renewed(&found);
        if difference.is_none() && renewed.is_as(&found) {
            return Ok(found);
        }
        if !files::wait_for(|| !journal::in_use(&folder.journals())) {
            return Err(in_use(folder));
        }
        if let Some(holder) = launch::other_holder(folder, self.launch.as_deref()) {
            return Err(launch::held(folder, &holder));
        }
        let journals = folder.journals();
        if !begun(&journals) {
            let fresh = self.named(folder)?;
            fresh.write(folder).map_err(&io)?;
            return Ok(fresh);
        }
        if difference.is_none() {
            renewed.write(folder).map_err(&io)?;
            return Ok(renewed);
        }
        if !accept && has_results(&journals) {
            return Err(self.other(folder, &difference, &journals));
        }
        let mut next = self.successor(&found).known_as(&found, &difference);
        next.changed.extend(difference.lines());
        supersede::supersede(folder, next, &difference).map_err(&io)
    }

    /// Checks, without writing, that the folder is new or holds this run; large inputs that it reads
    /// for that are not read again. Returns lines that warn the user of changes that they may not
    /// expect.
    ///
    /// # Errors
    /// Refuses a folder with another run, or with a damaged plan.
    pub fn check(&mut self, folder: &RunFolder, accept: bool) -> Result<Vec<String>, Refusal> {
        if !folder.plan().exists() {
            return Ok(Vec::new());
        }
        let found = Self::read(folder)?;
        let journals = supersede::journals(folder, &found);
        if !begun(&journals) {
            return Ok(Vec::new());
        }
        self.settle_inputs(&found, folder, true);
        let difference = Difference::between(&found, self);
        if difference.is_none() {
            let reordered =
                "the jobs are in a different order than in the run, whose order is kept";
            let is_reordered = difference.is_reordered();
            return Ok(Vec::from_iter(is_reordered.then(|| reordered.to_owned())));
        }
        let has_results = has_results(&journals);
        if !accept && has_results {
            return Err(self.other(folder, &difference, &journals));
        }
        let changed = difference
            .lines()
            .into_iter()
            .map(|line| format!("changed: {line}"));
        let consequence = match has_results {
            true => consequence(&difference, folder, &journals),
            false => format!(
                "nothing has finished in `{}` yet, so the jobs are used as they are now; earlier \
                 files move to `{}`",
                folder.root().display(),
                folder.superseded().display()
            ),
        };
        Ok(changed.chain([consequence]).collect())
    }

    /// Returns the run that was found, with the new values of everything that does not affect the
    /// results.
    fn renewed(&self, found: &Self) -> Self {
        let now: BTreeMap<&str, &Job> = self
            .jobs
            .iter()
            .map(|job| (job.name.as_str(), job))
            .collect();
        let renew = |job: &Job| match now.get(job.name.as_str()) {
            Some(&now) => Job {
                index: job.index,
                ..now.clone()
            },
            None => job.clone(),
        };
        Self {
            jobs: found.jobs.iter().map(renew).collect(),
            inputs: self.renewed_inputs(found),
            ..found.clone()
        }
    }

    /// Returns whether both have the same jobs, run in the same way, with the same inputs.
    fn is_as(&self, found: &Self) -> bool {
        (&self.jobs, &self.inputs) == (&found.jobs, &found.inputs)
    }

    /// Returns this plan as the successor of the one that was found: it belongs to the same run.
    fn successor(self, found: &Self) -> Self {
        Self {
            id: found.id.clone(),
            git: found.git.clone(),
            world_size: found.world_size,
            created: found.created.clone(),
            rrun: found.rrun.clone(),
            resumed_from: found.resumed_from.clone(),
            changed: found.changed.clone(),
            ..self
        }
    }

    fn other(&self, folder: &RunFolder, difference: &Difference, journals: &Path) -> Refusal {
        let would = consequence(difference, folder, journals);
        Refusal::new(format_args!(
            "run folder `{}` contains a different run:\n  {}\nchoose another --output, or use \
             --accept-changed-jobs: {would}",
            folder.root().display(),
            difference.lines().join("\n  ")
        ))
    }

    /// Replaces the plan of a folder.
    pub(super) fn write(&self, folder: &RunFolder) -> std::io::Result<()> {
        write_whole(&folder.plan(), &serde_json::to_vec_pretty(self)?)
    }
}

/// Refuses a folder of which another process has a journal open.
pub(super) fn in_use(folder: &RunFolder) -> Refusal {
    let folder = folder.root().display();
    Refusal::new(format_args!("another evaluation is running in `{folder}`"))
}

/// Says what accepting changed jobs does to the finished episodes, as in `12 finished episodes stay;
/// 53 of 2 jobs (pick, reach) move to …`.
fn consequence(difference: &Difference, folder: &RunFolder, journals: &Path) -> String {
    // An unreadable journal is an error elsewhere, where its content matters.
    let done = done(journals).unwrap_or_default();
    let none = BTreeSet::new();
    let (mut stay, mut left_out, mut moved, mut leaving) = (0, 0, 0, Vec::new());
    for job in &difference.jobs {
        let done = done.get(&job.name).unwrap_or(&none);
        if job.stays() {
            let within = job
                .episodes
                .map_or(done.len(), |count| done.range(..count).count());
            stay += within;
            left_out += done.len() - within;
        } else if !done.is_empty() {
            moved += done.len();
            leaving.push(job.name.as_str());
        }
    }
    let stays = if stay == 1 { "stays" } else { "stay" };
    let mut text = format!("{} {stays}", counted(stay, "finished episode"));
    if left_out > 0 {
        let counts = if left_out == 1 { "counts" } else { "count" };
        text += &format!(", {left_out} no longer {counts}");
    }
    if moved > 0 {
        let (of, to) = (difference::names(&leaving), folder.superseded());
        text += &format!("; {moved} of {of} move to `{}`", to.display());
    }
    text
}

/// Returns the finished episodes by job. Holds their numbers, not their lines.
pub(super) fn done(journals: &Path) -> io::Result<BTreeMap<String, BTreeSet<u64>>> {
    let mut done: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for path in journal::files(journals)? {
        journal::each(&path, |line, _| {
            if let Line::Episode(episode) = line
                && episode.error.is_none()
            {
                done.entry(episode.job).or_default().insert(episode.episode);
            }
        })?;
    }
    Ok(done)
}

/// Returns whether an episode or a job has ended, so that its results would be lost under other
/// jobs. Damaged lines and unreadable journals count as results. Reads no further than the first.
fn has_results(journals: &Path) -> bool {
    let has_one = |path: PathBuf| -> io::Result<bool> {
        let mut lines = Lines::open(&path)?;
        while let Some((_, text)) = lines.next()? {
            if is_result(&serde_json::from_slice(text)?) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let paths = journal::files(journals);
    paths.map_or(true, |paths| {
        paths.into_iter().any(|path| has_one(path).unwrap_or(true))
    })
}

fn is_result(line: &Line) -> bool {
    match line {
        Line::Episode(episode) => episode.error.is_none(),
        // In a job of fixed steps the last episode need not have ended.
        Line::JobEnd(end) => end.error.is_none() && end.costs.env_steps > 0,
        _ => false,
    }
}

/// Returns whether a journal has a line or cannot be read.
fn begun(journals: &Path) -> bool {
    journal::begun(journals).unwrap_or(true)
}
