//! One episode of a planner, with its session and its files, which are in EmbodiedBench's format
//! (`EBAlfEnv.save_image`, `save_episode_log`, `save_episode_metric`), in one folder of the job:
//!
//! ```text
//! images/episode_3/episode_3_step_2_front.png   picture for the model after two actions
//! episode_3_step_7.json                         one line per action; 7 is the number of actions
//! results/episode_3_final_res.json              result of the episode
//! requests/episode_3.jsonl                      our own: each request, its answer, tokens, seconds
//! ```
//! Lines are written as they arrive, into `episode_3_unfinished.json` until the episode is over.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use jobs::files;
use serde_json::{Map, Value, json};

use crate::clock::now;
use crate::env::Observation;
use crate::policy::agent::chat::PngPicture;
use crate::policy::agent::failed;
use crate::policy::agent::hands::Hands;
use crate::policy::agent::server::ModelServer;
use crate::policy::agent::session::PlanningSession;
use crate::policy::{Over, PolicyError, PolicyRow, RowAnswer};

/// One episode of a planner.
pub(super) struct AgentEpisode {
    number: u64,
    server: Arc<ModelServer>,
    session: PlanningSession,
    /// Folder of its files.
    folder: Option<PathBuf>,
    /// The episode's files, opened for the first line.
    transcript: Option<Transcript>,
    started: Instant,
}

impl AgentEpisode {
    /// Creates the episode that begins with a row.
    pub(super) fn new(
        server: Arc<ModelServer>,
        hands: Hands,
        folder: Option<PathBuf>,
        first: &PolicyRow,
    ) -> Self {
        let settings = Arc::clone(&server.settings);
        Self {
            number: first.episode,
            session: PlanningSession::new(settings, hands, first.window.now()),
            server,
            folder,
            transcript: None,
            started: now(),
        }
    }

    /// Returns what to do about an observation. Blocks.
    pub(super) fn act(&mut self, seen: &Observation) -> Result<RowAnswer, PolicyError> {
        match self.next(seen)? {
            Some(answer) => Ok(answer),
            None => self.think(seen),
        }
    }

    /// Returns what to do about an observation; `None` to ask the model.
    pub(super) fn next(&mut self, seen: &Observation) -> Result<Option<RowAnswer>, PolicyError> {
        let next = self.session.next(seen)?;
        self.keep_lines().map_err(unwritten)?;
        Ok(next)
    }

    /// Asks the model until there is something to do. Blocks.
    pub(super) fn think(&mut self, seen: &Observation) -> Result<RowAnswer, PolicyError> {
        let picture = |camera: &String| {
            let frame = seen.video.get(camera);
            let frame = frame.ok_or_else(|| format!("camera `{camera}` shows nothing"))?;
            PngPicture::new(camera, frame)
        };
        let pictures: Result<Vec<_>, _> = self.server.cameras.iter().map(picture).collect();
        let pictures = pictures.map_err(failed)?;
        loop {
            self.ask(&pictures)?;
            if let Some(answer) = self.next(seen)? {
                return Ok(answer);
            }
        }
    }

    fn ask(&mut self, pictures: &[PngPicture]) -> Result<(), PolicyError> {
        let env_step = self.session.counts.num_steps;
        let images = match self.transcript().map_err(unwritten)? {
            Some(transcript) => transcript.pictures(env_step, pictures).map_err(unwritten)?,
            None => Vec::new(),
        };
        let messages = self.session.messages();
        let answer = self.server.ask(&messages, pictures).map_err(failed)?;
        let latency = answer.took.as_secs_f64();
        let counts = &mut self.session.counts;
        counts.prompt_tokens += answer.prompt_tokens;
        counts.completion_tokens += answer.completion_tokens;
        counts.planner_retries += answer.retries;
        counts.planner_latency_s += latency;
        let session = &mut self.session;
        let answered = session.answered(&messages, &answer.text, answer.is_cut);
        let line = json!({
            "planner_step": session.counts.planner_steps,
            "env_step": env_step,
            "messages": messages,
            "images": images,
            "answer": answer.text,
            "error": answered.err().map(|unusable| unusable.to_string()),
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens,
            "retries": answer.retries,
            "latency_s": latency,
        });
        match &mut self.transcript {
            Some(transcript) => append(&mut transcript.requests, &line).map_err(unwritten),
            None => Ok(()),
        }
    }

    /// Returns the episode's files and creates them if needed.
    fn transcript(&mut self) -> io::Result<Option<&mut Transcript>> {
        if let (None, Some(folder)) = (&self.transcript, &self.folder) {
            self.transcript = Some(Transcript::begin(folder, self.number)?);
        }
        Ok(self.transcript.as_mut())
    }

    fn keep_lines(&mut self) -> io::Result<()> {
        let lines = std::mem::take(&mut self.session.lines);
        let elapsed = self.started.elapsed().as_secs_f64();
        for mut line in lines {
            line["episode_elapsed_seconds"] = json!(elapsed);
            if let Some(transcript) = self.transcript()? {
                append(&mut transcript.lines, &line)?;
            }
        }
        Ok(())
    }

    /// Ends the episode: writes its last line and its result, and returns its metrics.
    pub(super) fn end(&mut self, over: &Over) -> Result<BTreeMap<String, f64>, PolicyError> {
        self.session.end(&over.observation, over.success);
        self.keep_lines().map_err(unwritten)?;
        let counts = match json!(self.session.counts) {
            Value::Object(counts) => counts,
            _ => Map::new(),
        };
        let metric = |(name, count): (&String, &Value)| Some((name.clone(), count.as_f64()?));
        let metrics = counts.iter().filter_map(metric).collect();
        if let Some(transcript) = self.transcript.take() {
            // As in EmbodiedBench, this is the mean over all steps.
            let reward = over.return_ / over.length.max(1) as f64;
            let mut result = json!({
                "reward": reward,
                "instruction": self.session.instruction,
                "task_success": f64::from(u8::from(over.success)),
                "episode_elapsed_seconds": self.started.elapsed().as_secs_f64(),
                "episode": self.number,
                "env_steps": over.length,
            });
            if let Value::Object(fields) = &mut result {
                fields.extend(counts);
            }
            let steps = self.session.counts.num_steps;
            transcript.end(steps, &result).map_err(unwritten)?;
        }
        Ok(metrics)
    }
}

fn unwritten(err: io::Error) -> PolicyError {
    failed(format!(
        "the transcript of the planner cannot be written: {err}"
    ))
}

/// The files of one episode.
struct Transcript {
    folder: PathBuf,
    episode: u64,
    lines: File,
    requests: File,
}

impl Transcript {
    /// Creates the files, after removing those of an earlier attempt at the episode.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    fn begin(folder: &Path, episode: u64) -> io::Result<Self> {
        for below in ["", "results", "requests"] {
            fs::create_dir_all(folder.join(below))?;
        }
        remove_earlier(folder, episode)?;
        let images = images(folder, episode);
        if images.exists() {
            fs::remove_dir_all(images)?;
        }
        let requests = File::create(folder.join(format!("requests/episode_{episode}.jsonl")))?;
        let lines = File::create(unfinished(folder, episode))?;
        Ok(Self {
            folder: folder.to_owned(),
            episode,
            lines,
            requests,
        })
    }

    /// Saves the pictures that the model sees after `env_step` actions, and returns the names of
    /// the files relative to the folder.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    fn pictures(&mut self, env_step: u64, pictures: &[PngPicture]) -> io::Result<Vec<String>> {
        let episode = self.episode;
        if !pictures.is_empty() {
            fs::create_dir_all(images(&self.folder, episode))?;
        }
        let mut names = Vec::new();
        for PngPicture { camera, png } in pictures {
            let camera = match pictures.len() {
                1 => String::new(),
                _ => format!("_{}", plain(camera)),
            };
            let name =
                format!("images/episode_{episode}/episode_{episode}_step_{env_step}{camera}.png");
            fs::write(self.folder.join(&name), png)?;
            names.push(name);
        }
        Ok(names)
    }

    /// Ends the episode and writes its result.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    fn end(self, env_step: u64, result: &Value) -> io::Result<()> {
        let (folder, episode) = (&self.folder, self.episode);
        let text = serde_json::to_string_pretty(result)?;
        jobs::layout::write_whole(&results(folder, episode), text.as_bytes())?;
        let lines = folder.join(format!("episode_{episode}_step_{env_step}.json"));
        fs::rename(unfinished(folder, episode), lines)
    }
}

/// Writes one line at once.
fn append(file: &mut File, line: &Value) -> io::Result<()> {
    file.write_all(format!("{line}\n").as_bytes())
}

fn images(folder: &Path, episode: u64) -> PathBuf {
    folder.join(format!("images/episode_{episode}"))
}

fn results(folder: &Path, episode: u64) -> PathBuf {
    folder.join(format!("results/episode_{episode}_final_res.json"))
}

fn unfinished(folder: &Path, episode: u64) -> PathBuf {
    folder.join(format!("episode_{episode}_unfinished.json"))
}

/// Turns a camera's name into a part of a file name.
fn plain(name: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    name.replace(|letter| !is_plain(letter), "_")
}

/// Removes the files of an earlier attempt, whose number of steps is not known.
fn remove_earlier(folder: &Path, episode: u64) -> io::Result<()> {
    let prefix = format!("episode_{episode}_");
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(&prefix) && name.ends_with(".json")) {
            fs::remove_file(path)?;
        }
    }
    files::remove(&results(folder, episode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(path.strip_prefix(folder).unwrap().display().to_string());
                }
            }
        }
        found.sort();
        found
    }

    fn picture(camera: &str) -> PngPicture {
        PngPicture {
            camera: camera.to_owned(),
            png: vec![1],
        }
    }

    #[test]
    fn an_episode_is_kept_as_embodied_bench_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut transcript = Transcript::begin(folder.path(), 3).unwrap();
        transcript.pictures(0, &[picture("front/left")]).unwrap();
        transcript
            .pictures(2, &[picture("front/left"), picture("wrist")])
            .unwrap();
        assert!(names(folder.path()).contains(&"episode_3_unfinished.json".to_owned()));
        transcript.end(7, &json!({"task_success": 1.0})).unwrap();
        let wanted = [
            "episode_3_step_7.json",
            "images/episode_3/episode_3_step_0.png",
            "images/episode_3/episode_3_step_2_front_left.png",
            "images/episode_3/episode_3_step_2_wrist.png",
            "requests/episode_3.jsonl",
            "results/episode_3_final_res.json",
        ];
        assert_eq!(names(folder.path()), wanted);
    }

    #[test]
    fn another_attempt_leaves_nothing_of_the_one_before_and_all_of_other_episodes() {
        let folder = tempfile::tempdir().unwrap();
        for episode in [3, 31] {
            let mut transcript = Transcript::begin(folder.path(), episode).unwrap();
            transcript.pictures(5, &[picture("front")]).unwrap();
            transcript.end(9, &json!({})).unwrap();
        }
        drop(Transcript::begin(folder.path(), 3).unwrap());
        let left = names(folder.path());
        let count = |part: &str| left.iter().filter(|name| name.contains(part)).count();
        let counts = ["episode_3_step", "episode_3_final", "episode_31"].map(count);
        assert_eq!(counts, [0, 0, 4], "{left:?}");
    }
}
