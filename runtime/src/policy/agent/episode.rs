//! One episode of a planner, with its session, its files and its costs.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clock::now;
use crate::env::Observation;
use crate::policy::agent::failed;
use crate::policy::agent::picture::PngPicture;
use crate::policy::agent::server::{ModelClient, TimedCompletion};
use crate::policy::agent::session::{PlanStep, PlanningRules, PlanningSession};
use crate::policy::agent::transcript::Transcript;
use crate::policy::{Account, Over, PolicyError, RowAnswer};

/// What all episodes share.
pub(super) struct AgentShared {
    /// The model server.
    pub(super) server: ModelClient,
    /// The rules of planning.
    pub(super) rules: Arc<PlanningRules>,
    /// Cameras whose pictures the model sees.
    pub(super) cameras: Vec<String>,
}

/// The accumulated costs of an episode's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Costs {
    prompt_tokens: u64,
    completion_tokens: u64,
    retries: u64,
    latency: Duration,
}

/// One episode of a planner.
pub(super) struct AgentEpisode {
    number: u64,
    session: PlanningSession,
    /// Folder of its files.
    folder: Option<PathBuf>,
    /// The episode's files, opened for the first line.
    transcript: Option<Transcript>,
    costs: Costs,
    notes: Vec<String>,
    started: Instant,
}

impl AgentEpisode {
    /// Creates an episode without any observation.
    pub(super) fn new(number: u64, session: PlanningSession, folder: Option<PathBuf>) -> Self {
        let (costs, notes) = (Costs::default(), Vec::new());
        Self {
            number,
            session,
            folder,
            transcript: None,
            costs,
            notes,
            started: now(),
        }
    }

    /// Returns what to do about an observation.
    pub(super) fn next(&mut self, observation: &Observation) -> Result<PlanStep, PolicyError> {
        let next = self.session.next(observation)?;
        self.keep_lines()?;
        Ok(next)
    }

    /// Asks the model until there is something to do. Blocks.
    pub(super) fn think(
        &mut self,
        shared: &AgentShared,
        observation: &Observation,
    ) -> Result<RowAnswer, PolicyError> {
        let pictures = pictures(&shared.cameras, observation)?;
        loop {
            self.ask(&shared.server, pictures.clone())?;
            match self.next(observation)? {
                PlanStep::Steps(chunk) => return Ok(RowAnswer::Chunk(chunk)),
                PlanStep::Stop => return Ok(RowAnswer::End),
                PlanStep::Ask => {}
            }
        }
    }

    fn ask(&mut self, server: &ModelClient, pictures: Vec<PngPicture>) -> Result<(), PolicyError> {
        let env_step = self.session.counts().num_steps;
        let images = match self.transcript()? {
            Some(transcript) => transcript
                .pictures(env_step, &pictures)
                .map_err(unwritten)?,
            None => Vec::new(),
        };
        let messages = self.session.messages(pictures);
        let answered = server.ask(&messages).map_err(failed)?;
        let TimedCompletion {
            completion,
            retries,
            took,
            note,
        } = answered;
        self.notes.extend(note);
        self.costs.prompt_tokens += completion.prompt_tokens;
        self.costs.completion_tokens += completion.completion_tokens;
        self.costs.retries += u64::from(retries);
        self.costs.latency += took;
        let plan = self
            .session
            .answered(&messages, &completion.text, completion.is_cut);
        let said: Vec<_> = messages
            .iter()
            .map(|message| json!({"role": message.role, "text": message.text}))
            .collect();
        let line = json!({
            "planner_step": self.session.counts().planner_steps,
            "env_step": env_step,
            "messages": said,
            "images": images,
            "answer": completion.text,
            "error": plan.err().map(|unusable| unusable.to_string()),
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": completion.completion_tokens,
            "retries": retries,
            "latency_s": took.as_secs_f64(),
        });
        match self.transcript()? {
            Some(transcript) => transcript.request(&line).map_err(unwritten),
            None => Ok(()),
        }
    }

    /// Returns the episode's files and creates them if needed.
    fn transcript(&mut self) -> Result<Option<&mut Transcript>, PolicyError> {
        if let (None, Some(folder)) = (&self.transcript, &self.folder) {
            self.transcript = Some(Transcript::begin(folder, self.number).map_err(unwritten)?);
        }
        Ok(self.transcript.as_mut())
    }

    fn keep_lines(&mut self) -> Result<(), PolicyError> {
        let lines = self.session.take_lines();
        let elapsed = self.started.elapsed().as_secs_f64();
        if lines.is_empty() {
            return Ok(());
        }
        let Some(transcript) = self.transcript()? else {
            return Ok(());
        };
        for mut line in lines {
            line["episode_elapsed_seconds"] = json!(elapsed);
            transcript.line(&line).map_err(unwritten)?;
        }
        Ok(())
    }

    /// Ends the episode: writes its last line and its result, and returns its account.
    pub(super) fn end(&mut self, over: &Over) -> Result<Account, PolicyError> {
        self.session.end(&over.observation, over.success);
        self.keep_lines()?;
        let metrics = self.metrics(over);
        if let Some(transcript) = self.transcript.take() {
            let result = self.result(over, &metrics);
            transcript
                .end(self.session.counts().num_steps, &result)
                .map_err(unwritten)?;
        }
        Ok(Account {
            metrics,
            notes: std::mem::take(&mut self.notes),
        })
    }

    fn metrics(&self, over: &Over) -> BTreeMap<String, f64> {
        let (counts, costs) = (self.session.counts(), self.costs);
        let ratio = if counts.num_steps > 0 {
            counts.num_invalid_actions as f64 / counts.num_steps as f64
        } else {
            0.0
        };
        let metrics = [
            ("num_steps", counts.num_steps as f64),
            ("planner_steps", counts.planner_steps as f64),
            ("planner_output_error", counts.planner_output_error as f64),
            ("num_invalid_actions", counts.num_invalid_actions as f64),
            ("num_invalid_action_ratio", ratio),
            ("empty_plan", f64::from(u8::from(counts.empty_plan))),
            ("task_progress", self.session.progress(over.success)),
            ("prompt_tokens", costs.prompt_tokens as f64),
            ("completion_tokens", costs.completion_tokens as f64),
            ("planner_retries", costs.retries as f64),
            ("planner_latency_s", costs.latency.as_secs_f64()),
        ];
        metrics
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// Returns the content of `episode_<i>_final_res.json`: EmbodiedBench's fields, followed by our
    /// own.
    fn result(&self, over: &Over, metrics: &BTreeMap<String, f64>) -> Value {
        // As in EmbodiedBench, this is the mean over all steps.
        let reward = if over.length > 0 {
            over.return_ / over.length as f64
        } else {
            0.0
        };
        let mut result = json!({
            "reward": reward,
            "instruction": self.session.instruction(),
            "task_success": f64::from(u8::from(over.success)),
            "episode_elapsed_seconds": self.started.elapsed().as_secs_f64(),
            "episode": self.number,
            "env_steps": over.length,
        });
        for (name, value) in metrics {
            // Write counts as integers.
            let is_whole =
                value.fract() == 0.0 && name != "task_progress" && !name.ends_with("_ratio");
            result[name] = if is_whole {
                json!(*value as u64)
            } else {
                json!(value)
            };
        }
        result
    }
}

fn pictures(cameras: &[String], observation: &Observation) -> Result<Vec<PngPicture>, PolicyError> {
    let picture = |camera: &String| {
        let frame = observation.video.get(camera);
        let frame = frame.ok_or_else(|| format!("camera `{camera}` shows nothing"))?;
        PngPicture::new(camera, frame)
    };
    let pictures: Result<_, String> = cameras.iter().map(picture).collect();
    pictures.map_err(failed)
}

fn unwritten(err: io::Error) -> PolicyError {
    failed(format!(
        "the transcript of the planner cannot be written: {err}"
    ))
}
