//! Looks at the run folder while somebody looks at the page.
//!
//! Reading and rendering happen in a thread for blocking work. A look that took long is followed by
//! a long pause, so that a large run costs no more of the machine than a small one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jobs::live::picture_of;
use jobs::refusal::Refusal;
use jobs::time::{Moment, now, rfc3339};
use report::Report;
use report::live::LiveRun;
use report::page::Zone;
use report::page::live::{LiveExtras, fragments, moving};
use tokio::select;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::page::state::{Look, NamedFiles, PageState};
use crate::page::{FAREWELL, files};

/// Time between two looks, at least.
const PERIOD: Duration = Duration::from_secs(1);

/// A look is followed by a pause of this many times its duration: it takes a twentieth of a core.
const PAUSE: u32 = 19;

/// Longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Time without anybody who looks after which what was read is dropped.
const FORGET: Duration = Duration::from_secs(60);

/// Characters of a hang report that the page shows.
const HANG_CHARS: usize = 16_000;

/// Hang reports that are looked for: the launcher numbers them from 1.
const MOST_HANGS: u64 = 1000;

/// What was found so far.
#[derive(Default)]
struct Found {
    run: Option<LiveRun>,
    report: Option<Report>,
    hangs: BTreeMap<u64, String>,
}

/// Keeps the page up to date while somebody looks, until `is_over`; then looks once more if
/// somebody does, and waits until the browsers have asked for that.
pub(super) async fn run(page: &Arc<PageState>, mut is_over: watch::Receiver<bool>) {
    let mut found = Found::default();
    loop {
        let has_ended = select! {
            biased;
            _ = is_over.changed() => true,
            () = page.somebody() => false,
            () = sleep(FORGET), if found.run.is_some() => {
                found = Found::default();
                continue;
            }
        };
        if has_ended && !page.is_looked_at() {
            return;
        }
        let (began, task_page) = (now(), Arc::clone(page));
        let task = spawn_blocking(move || {
            let look = look(&mut found, &task_page, has_ended);
            (found, look)
        });
        // It may be that a disk does not answer.
        let limit = if has_ended { FAREWELL } else { Duration::MAX };
        let Ok(done) = timeout(limit, task).await else {
            return;
        };
        let mut pause = (began.elapsed() * PAUSE).clamp(PERIOD, LONGEST_PAUSE);
        let look;
        (found, look) = done.unwrap_or_else(|_| {
            // It has panicked, which was printed; from the start, it may go better.
            pause = LONGEST_PAUSE;
            let reason = "the state of the run cannot be shown";
            (Found::default(), Err(Refusal::new(reason)))
        });
        page.show(look.map_err(|err| err.to_string()));
        if has_ended {
            sleep(FAREWELL).await;
            return;
        }
        // The end of the launch ends the pause.
        let _ = timeout(pause, is_over.changed()).await;
    }
}

/// Looks at the run folder once. `has_ended` says that the launch is over, which still holds the
/// folder.
fn look(found: &mut Found, page: &PageState, has_ended: bool) -> Result<Look, Refusal> {
    let run = match &mut found.run {
        Some(run) => run,
        run => run.insert(LiveRun::open(page.folder.clone())?),
    };
    if has_ended {
        run.end();
    }
    let has_grown = run.refresh(now())?;
    let at = SystemTime::now();
    let is_new = has_grown || has_ended || found.report.is_none();
    if is_new {
        let mut report = run.report(at).map_err(Refusal::new)?;
        // Datasets are not sent to browsers.
        report
            .per_job
            .iter_mut()
            .for_each(|job| job.datasets.clear());
        found.report = Some(report);
    }
    let pictures = pictures(page);
    note_hangs(&mut found.hangs, page);
    let extras = extras(run, &found.hangs, pictures.keys().copied().collect(), page);
    let report = found.report.as_ref().expect("it was made above");
    let view = run.view(report, Moment::parse(&rfc3339(at)));
    let started = report.run.started.as_deref().unwrap_or(&report.run.written);
    let zone = Zone::here(started);
    let fragments = match is_new {
        true => fragments(&view, &extras, &zone),
        false => moving(&view, &extras, &zone),
    };
    Ok(Look {
        title: view.title(),
        zone: zone.name().to_owned(),
        fragments,
        pictures: pictures
            .into_iter()
            .map(|((rank, env), version)| (format!("{rank}/{env}"), version.to_string()))
            .collect(),
        files: is_new.then(|| named_files(run, report)),
    })
}

fn extras(
    run: &LiveRun,
    hangs: &BTreeMap<u64, String>,
    pictures: BTreeSet<(usize, usize)>,
    page: &PageState,
) -> LiveExtras {
    let commands = page.commands();
    let skipped = run
        .plan()
        .jobs
        .iter()
        .filter(|job| commands.skip.contains(&job.index));
    LiveExtras {
        pictures,
        hangs: hangs.clone(),
        has_buttons: page.has_buttons,
        is_stopping: commands.stop,
        skipped: skipped.map(|job| job.name.clone()).collect(),
    }
}

/// Returns the version of the newest picture of each environment: when it was written.
fn pictures(page: &PageState) -> BTreeMap<(usize, usize), u128> {
    let entries = std::fs::read_dir(page.folder.live());
    let entries = entries.into_iter().flatten().flatten();
    let versions = entries.filter_map(|entry| {
        let place = picture_of(entry.file_name().to_str()?)?;
        let written = entry.metadata().and_then(|meta| meta.modified()).ok()?;
        let age = written.duration_since(UNIX_EPOCH).ok()?;
        Some((place, age.as_millis()))
    });
    versions.collect()
}

/// Reads the hang reports that are new.
fn note_hangs(hangs: &mut BTreeMap<u64, String>, page: &PageState) {
    let first = hangs.keys().next_back().map_or(1, |last| last + 1);
    for number in first..MOST_HANGS {
        let Ok(text) = files::beginning(&page.folder.hang_report(number), HANG_CHARS) else {
            return;
        };
        hangs.insert(number, text);
    }
}

/// Returns the films and logs that the journals name.
fn named_files(run: &LiveRun, report: &Report) -> NamedFiles {
    let jobs = report.per_job.iter();
    let of_jobs = jobs.flat_map(|job| job.videos.iter().chain(&job.log));
    let unsolved = report.unsolved.iter();
    let of_episodes = unsolved.flat_map(|episode| {
        let video = episode.video.as_ref().map(|video| &video.file);
        video.into_iter().chain(&episode.episode_video)
    });
    let logs = report
        .failures
        .iter()
        .filter_map(|failure| failure.log.as_ref());
    let names = of_jobs.chain(of_episodes).chain(logs).cloned().collect();
    let elsewhere = run
        .plan()
        .jobs
        .iter()
        .filter_map(|job| job.video.base_dir.clone());
    let roots: BTreeSet<PathBuf> = elsewhere.chain([run.folder.root().to_owned()]).collect();
    NamedFiles {
        names,
        roots: roots.into_iter().collect(),
    }
}
