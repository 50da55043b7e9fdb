//! One episode of a planner, with its session and its files.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::clock::now;
use crate::env::Observation;
use crate::policy::agent::chat::PngPicture;
use crate::policy::agent::failed;
use crate::policy::agent::hands::Hands;
use crate::policy::agent::server::ModelServer;
use crate::policy::agent::session::PlanningSession;
use crate::policy::agent::transcript::Transcript;
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
            Some(transcript) => transcript.request(&line).map_err(unwritten),
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
                transcript.line(&line)?;
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
