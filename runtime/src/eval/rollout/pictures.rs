//! The newest picture of each environment, for the page of the run.
//!
//! ```text
//! step ─► observation ─ at most once a second and environment ─► thread ─► live/rank0_env3.png
//! ```
//! Only images that were rendered anyway are shown. The loop hands over references and never waits:
//! while the thread is busy, pictures are left out.
//!
//! A picture belongs to the job that made it: a job begins without any, and its thread has ended when
//! the next one begins. The last pictures stay until then, next to the episodes that they show.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use jobs::layout::{RunFolder, replace};
use jobs::live::picture_of;

use crate::env::{EnvIndex, Frame, Observation};
use crate::joined::JoinedThread;
use crate::record::thumbnail;

/// Time between two pictures of an environment.
const PERIOD: Duration = Duration::from_secs(1);

/// Pictures that wait for the thread.
const WAITING: usize = 4;

/// Shows pictures of the environments of a job.
#[derive(Debug)]
pub struct LivePictures {
    /// It has a few small pictures left at most when it is to end.
    thread: JoinedThread<SyncSender<Shot>>,
    /// When the last picture of each environment was taken.
    taken: BTreeMap<EnvIndex, Instant>,
}

/// What an environment shows.
#[derive(Debug)]
struct Shot {
    env: EnvIndex,
    /// Images by camera, which are shared and not copied.
    video: BTreeMap<String, Frame>,
}

impl LivePictures {
    /// Removes the pictures of earlier jobs of this rank and starts the thread; `None` if it cannot be
    /// started or the folder not be made, because a run does not depend on its pictures.
    pub fn start(folder: &RunFolder, rank: usize) -> Option<Self> {
        std::fs::create_dir_all(folder.live()).ok()?;
        remove(folder, rank);
        let (sender, shots) = sync_channel(WAITING);
        let folder = folder.clone();
        let thread = Builder::new().name("pictures".to_owned());
        let write = move || write(&shots, &folder, rank);
        Some(Self {
            thread: JoinedThread::spawn(thread, sender, write).ok()?,
            taken: BTreeMap::new(),
        })
    }

    /// Shows what an environment has shown, if it is time.
    pub fn show(&mut self, env: EnvIndex, observation: &Observation, now: Instant) {
        let is_fresh = |taken: &Instant| now.saturating_duration_since(*taken) < PERIOD;
        if observation.video.is_empty() || self.taken.get(&env).is_some_and(is_fresh) {
            return;
        }
        let video = observation.video.clone();
        if self.thread.end.try_send(Shot { env, video }).is_ok() {
            self.taken.insert(env, now);
        }
    }
}

/// Removes the pictures of a rank.
fn remove(folder: &RunFolder, rank: usize) {
    let entries = std::fs::read_dir(folder.live());
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let of = name.to_str().and_then(picture_of);
        if of.is_some_and(|(of, _)| of == rank)
            && let Err(err) = std::fs::remove_file(entry.path())
        {
            tracing::debug!(%err, path = %entry.path().display(), "an old picture stays");
        }
    }
}

/// Writes pictures until the job has ended.
fn write(shots: &Receiver<Shot>, folder: &RunFolder, rank: usize) {
    for Shot { env, video } in shots {
        let Some(png) = thumbnail(&video) else {
            continue;
        };
        let path = folder.picture(rank, env.0);
        if let Err(err) = replace(&path, |file| std::io::Write::write_all(file, &png)) {
            tracing::debug!(%err, path = %path.display(), "no picture");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn observation(byte: u8) -> Observation {
        let front = crate::policy::tests::frame([16, 16], byte);
        Observation {
            video: BTreeMap::from([("front".to_owned(), front)]),
            ..Observation::default()
        }
    }

    #[test]
    fn an_environment_has_a_picture_a_second_and_nobody_waits_for_it() {
        let (sender, shots) = sync_channel(WAITING);
        let mut pictures = LivePictures {
            thread: JoinedThread::spawn(Builder::new(), sender, || {}).unwrap(),
            taken: BTreeMap::new(),
        };
        let begin = clock::now();
        let shown =
            |shots: &Receiver<Shot>| shots.try_iter().map(|shot| shot.env.0).collect::<Vec<_>>();
        for env in [0, 1, 0, 1] {
            pictures.show(EnvIndex(env), &observation(1), begin);
        }
        assert_eq!(shown(&shots), [0, 1]);
        pictures.show(EnvIndex(0), &observation(1), begin + PERIOD);
        pictures.show(EnvIndex(2), &Observation::default(), begin);
        assert_eq!(shown(&shots), [0], "without an image there is no picture");
        for env in 10..30 {
            pictures.show(EnvIndex(env), &observation(1), begin);
        }
        assert_eq!(shown(&shots).len(), WAITING, "the others are left out");
        pictures.show(EnvIndex(29), &observation(1), begin);
        assert_eq!(shown(&shots), [29], "and come with the next step");
    }

    #[test]
    fn a_picture_is_a_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        std::fs::create_dir(folder.live()).unwrap();
        let (sender, shots) = sync_channel(WAITING);
        let video = observation(7).video;
        sender
            .send(Shot {
                env: EnvIndex(3),
                video,
            })
            .unwrap();
        drop(sender);
        write(&shots, &folder, 1);
        let found = std::fs::read(folder.picture(1, 3)).unwrap();
        assert!(found.starts_with(b"\x89PNG"));
        assert_eq!(std::fs::read_dir(folder.live()).unwrap().count(), 1);
    }

    #[test]
    fn a_job_begins_without_the_pictures_of_those_before() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        std::fs::create_dir(folder.live()).unwrap();
        let all = [(0, 0), (1, 0), (1, 3), (11, 0)];
        for (rank, env) in all {
            std::fs::write(folder.picture(rank, env), "old").unwrap();
        }
        let pictures = LivePictures::start(&folder, 1).unwrap();
        let left = all.map(|(rank, env)| folder.picture(rank, env).exists());
        assert_eq!(left, [true, false, false, true]);
        drop(pictures);
    }

    #[test]
    fn no_picture_of_a_job_comes_after_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let mut pictures = LivePictures::start(&folder, 0).unwrap();
        pictures.show(EnvIndex(2), &observation(7), clock::now());
        drop(pictures);
        assert!(folder.picture(0, 2).exists(), "it was written before");
        drop(LivePictures::start(&folder, 0).unwrap());
        assert!(!folder.picture(0, 2).exists(), "the next job has its own");
    }
}
