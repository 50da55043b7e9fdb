//! The encoder threads: each owns some of the videos and handles the recorder's messages in order.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{self, JoinHandle};

use crate::env::{EnvIndex, EnvSpec, Frame};
use crate::record::RecordError;
use crate::record::lane::{ChannelWaits, Closed, Lane};
use crate::record::parts::EpisodePart;
use crate::record::video::grid::GridVideo;
use crate::record::video::plan::VideoPlan;
use crate::record::video::track::Track;

/// Maximum bytes of images in the channel to one thread. Below it the loop never waits for an
/// encoder.
const WAITING: u64 = 128 << 20;
/// Limits of the number of messages in a channel; within them, [`WAITING`] decides.
const QUEUE: RangeInclusive<u64> = 8..=512;

/// The images of one step by camera, shared by all consumers.
pub(in crate::record) type StepImages = Arc<BTreeMap<String, Frame>>;

/// An event in an environment.
#[derive(Debug)]
enum Cue {
    Begin { episode: u64 },
    Pictures(StepImages),
    End { ticket: u64, success: bool },
    Discard,
}

#[derive(Debug)]
enum VideoMessage {
    Track(usize, Cue),
    Grid {
        grid: usize,
        cell: usize,
        pictures: StepImages,
    },
}

/// The recorder's handle of the encoder threads.
#[derive(Debug)]
pub(in crate::record) struct Crew {
    lanes: Vec<Lane<VideoMessage>>,
    num_envs: usize,
    /// Cell of each environment; `None` if it is in no grid.
    cells: Vec<Option<GridCell>>,
}

/// The place of an environment in a grid.
#[derive(Clone, Copy, Debug)]
struct GridCell {
    grid: usize,
    cell: usize,
}

/// The videos of one thread.
struct Coder {
    tracks: BTreeMap<usize, Track>,
    grids: BTreeMap<usize, GridVideo>,
    answers: Sender<EpisodePart>,
}

impl Crew {
    /// Starts the threads of a resolved plan; each `end` gets one answer.
    pub(in crate::record) fn start(
        plan: &VideoPlan,
        env: &EnvSpec,
        answers: &Sender<EpisodePart>,
    ) -> Result<Self, RecordError> {
        let num_envs = plan.stems.len();
        let mut cells = vec![None; num_envs];
        for (number, grid) in plan.grids.iter().enumerate() {
            grid.envs
                .iter()
                .enumerate()
                .for_each(|(cell, env)| cells[*env] = Some(GridCell { grid: number, cell }));
        }
        let files = num_envs + plan.grids.len();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = if plan.threads == 0 {
            cores
        } else {
            plan.threads
        }
        .clamp(1, files.max(1));
        let mut coders: Vec<Coder> = (0..threads)
            .map(|_| Coder {
                tracks: BTreeMap::new(),
                grids: BTreeMap::new(),
                answers: answers.clone(),
            })
            .collect();
        for (env, stem) in plan.stems.iter().enumerate() {
            coders[env % threads]
                .tracks
                .insert(env, Track::new(plan, stem));
        }
        for (number, grid) in plan.grids.iter().enumerate() {
            coders[(num_envs + number) % threads]
                .grids
                .insert(number, GridVideo::new(plan, grid));
        }
        let lanes = coders.into_iter().enumerate().map(|(number, coder)| {
            let run = move |inbox| coder.run(inbox);
            Lane::spawn(format!("video-{number}"), depth(env), run)
        });
        Ok(Self {
            lanes: lanes.collect::<Result<_, _>>()?,
            num_envs,
            cells,
        })
    }

    /// Begins an episode. Like the methods below, returns `false` if the thread has ended.
    pub(in crate::record) fn begin(
        &mut self,
        env: EnvIndex,
        episode: u64,
        first: StepImages,
    ) -> bool {
        self.cue(env, Cue::Begin { episode }) && self.pictures(env, first)
    }

    /// Adds the images of a step.
    pub(in crate::record) fn pictures(&mut self, env: EnvIndex, pictures: StepImages) -> bool {
        let Some(GridCell { grid, cell }) = self.cells[env.0] else {
            return self.cue(env, Cue::Pictures(pictures));
        };
        let thread = (self.num_envs + grid) % self.lanes.len();
        self.cue(env, Cue::Pictures(Arc::clone(&pictures)))
            && self.lanes[thread].send(VideoMessage::Grid {
                grid,
                cell,
                pictures,
            })
    }

    /// Ends the episode; the answer carries `ticket`.
    pub(in crate::record) fn end(&mut self, env: EnvIndex, ticket: u64, success: bool) -> bool {
        self.cue(env, Cue::End { ticket, success })
    }

    /// Discards the episode.
    pub(in crate::record) fn discard(&mut self, env: EnvIndex) -> bool {
        self.cue(env, Cue::Discard)
    }

    /// Returns how often and how long the caller had to wait.
    pub(in crate::record) fn waits(&self) -> ChannelWaits {
        self.lanes.iter().map(Lane::waits).sum()
    }

    /// Closes the channels to the threads, which then close their files in parallel.
    pub(in crate::record) fn close(self) -> impl Iterator<Item = JoinHandle<Closed>> {
        self.lanes.into_iter().map(Lane::close)
    }

    fn cue(&mut self, env: EnvIndex, cue: Cue) -> bool {
        let thread = env.0 % self.lanes.len();
        self.lanes[thread].send(VideoMessage::Track(env.0, cue))
    }
}

impl Coder {
    fn run(mut self, inbox: Receiver<VideoMessage>) -> Closed {
        for message in inbox {
            match message {
                VideoMessage::Grid {
                    grid,
                    cell,
                    pictures,
                } => {
                    if let Some(grid) = self.grids.get_mut(&grid) {
                        grid.push(cell, &pictures);
                    }
                }
                VideoMessage::Track(env, cue) => self.on(env, cue),
            }
        }
        let tracks = self.tracks.into_values().map(Track::finish);
        let closed = tracks.chain(self.grids.into_values().map(GridVideo::finish));
        closed.fold(Closed::default(), Closed::and)
    }

    fn on(&mut self, env: usize, cue: Cue) {
        let Some(track) = self.tracks.get_mut(&env) else {
            return;
        };
        match cue {
            Cue::Begin { episode } => track.begin(episode),
            Cue::Pictures(pictures) => track.push(&pictures),
            Cue::Discard => track.discard(),
            Cue::End { ticket, success } => {
                let part = match track.end(success) {
                    Ok(ended) => EpisodePart {
                        ticket,
                        video: ended.span,
                        episode_video: ended.file,
                        warning: ended.warning,
                        ..EpisodePart::default()
                    },
                    Err(err) => EpisodePart {
                        ticket,
                        error: Some(err.to_string()),
                        ..EpisodePart::default()
                    },
                };
                // The receiver is gone after the recorder has closed.
                self.answers.send(part).ok();
            }
        }
    }
}

/// Returns the capacity of a channel in messages; each has the images of one step.
fn depth(env: &EnvSpec) -> usize {
    let bytes: u64 = env
        .cameras
        .iter()
        .map(|camera| u64::from(camera.height) * u64::from(camera.width) * 3)
        .sum();
    (WAITING / bytes.max(1)).clamp(*QUEUE.start(), *QUEUE.end()) as usize
}
