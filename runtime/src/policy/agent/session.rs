//! One episode of a planner, as a state machine without sockets, clocks or files.
//!
//! ```text
//!            ┌───── action failed or plan finished ─────┐
//!            ▼                                          │
//! begin ─► asks ── a plan ─► executes action by action ─┘
//!            │ ▲
//!            │ └── unusable answer, unless there were too many
//!            └── empty plan, or too many invalid actions ─► stops
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::env::Observation;
use crate::policy::agent::answer::{self, ActionPlan, Unusable};
use crate::policy::agent::chat::ChatMessage;
use crate::policy::agent::hands::{ActionOutcome, ActionProgress, Hands};
use crate::policy::agent::picture::PngPicture;
use crate::policy::agent::prompt::{Executed, PlannerPrompt};
use crate::policy::{Chunk, PolicyError};

/// A job's rules for planning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlanningRules {
    /// Number of invalid answers and failed actions together after which an episode ends.
    pub(super) max_invalid_actions: u64,
    /// Whether earlier requests and answers of the episode are included, without their pictures.
    pub(super) chat_history: bool,
    /// Role of the model, replacing the built-in text.
    pub(super) role: Option<String>,
    /// Whether the model sees pictures.
    pub(super) sees: bool,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PlanStep {
    /// Execute these steps.
    Steps(Chunk),
    /// Ask the model.
    Ask,
    /// Stop: the episode is over.
    Stop,
}

/// The counts of an episode, under EmbodiedBench's names where it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PlanningCounts {
    /// Number of actions that were executed or attempted.
    pub(super) num_steps: u64,
    /// Number of answers from the model.
    pub(super) planner_steps: u64,
    /// Number of answers without a plan.
    pub(super) planner_output_error: u64,
    /// Number of unusable answers and failed actions.
    pub(super) num_invalid_actions: u64,
    /// Whether the model answered that nothing is left to do.
    pub(super) empty_plan: bool,
    /// The environment's last report of the progress, from 0 to 1.
    pub(super) task_progress: Option<f64>,
}

/// The state of one episode.
pub(super) struct PlanningSession {
    rules: Arc<PlanningRules>,
    hands: Hands,
    /// Names of the actions; `None` before the first observation.
    names: Option<Vec<String>>,
    instruction: String,
    plan: VecDeque<usize>,
    running: Option<usize>,
    history: Vec<Executed>,
    complaint: Option<String>,
    /// Earlier requests and answers.
    said: Vec<ChatMessage>,
    answer: String,
    counts: PlanningCounts,
    lines: Vec<Value>,
}

impl PlanningSession {
    /// Creates a session that has seen no observation.
    pub(super) fn new(rules: Arc<PlanningRules>, hands: Hands) -> Self {
        Self {
            rules,
            hands,
            names: None,
            instruction: String::new(),
            plan: VecDeque::new(),
            running: None,
            history: Vec::new(),
            complaint: None,
            said: Vec::new(),
            answer: String::new(),
            counts: PlanningCounts::default(),
            lines: Vec::new(),
        }
    }

    /// Returns the counts so far.
    pub(super) fn counts(&self) -> PlanningCounts {
        self.counts
    }

    /// Returns the task as text.
    pub(super) fn instruction(&self) -> &str {
        &self.instruction
    }

    /// Takes the transcript lines written since the last call.
    pub(super) fn take_lines(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.lines)
    }

    /// Returns what to do about an observation.
    ///
    /// # Errors
    /// Returns an error if the observation is incomplete.
    pub(super) fn next(&mut self, observation: &Observation) -> Result<PlanStep, PolicyError> {
        if self.names.is_none() {
            self.names = Some(self.hands.names(observation));
            self.instruction = observation.language.to_string();
        }
        let mut doing = match self.running {
            Some(_) => Some(self.hands.go_on(observation)?),
            None => None,
        };
        loop {
            match doing.take() {
                Some(ActionProgress::Steps(chunk)) => return Ok(PlanStep::Steps(chunk)),
                Some(ActionProgress::Ended(outcome)) => self.ended(outcome, observation, false),
                None => {}
            }
            if self.is_over() {
                return Ok(PlanStep::Stop);
            }
            let Some(action) = self.plan.pop_front() else {
                return Ok(PlanStep::Ask);
            };
            self.running = Some(action);
            doing = Some(self.hands.begin(action, observation)?);
        }
    }

    fn is_over(&self) -> bool {
        self.counts.empty_plan || self.counts.num_invalid_actions >= self.rules.max_invalid_actions
    }

    /// Records that an action has ended.
    fn ended(&mut self, outcome: ActionOutcome, observation: &Observation, solved: bool) {
        let Some(action) = self.running.take() else {
            return;
        };
        let ActionOutcome { success, feedback } = outcome;
        self.counts.num_steps += 1;
        let said = observation
            .feedback
            .as_ref()
            .and_then(|feedback| feedback.task_progress);
        self.counts.task_progress = said.or(self.counts.task_progress);
        if !success {
            self.counts.num_invalid_actions += 1;
            self.plan.clear();
        }
        let name = self
            .names
            .iter()
            .flatten()
            .nth(action)
            .cloned()
            .unwrap_or_default();
        self.lines.push(json!({
            "task_success": f64::from(u8::from(solved)),
            "task_progress": self.progress(solved),
            "instruction": self.instruction,
            "env_step": self.counts.num_steps,
            "env_feedback": feedback,
            "last_action_success": f64::from(u8::from(success)),
            "action_id": action,
            "action_description": name,
            "reasoning": self.answer,
        }));
        self.history.push(Executed {
            action,
            success,
            feedback,
        });
    }

    /// Returns the progress of the task: the environment's last report, or 1 if the task is solved.
    pub(super) fn progress(&self, solved: bool) -> f64 {
        if solved {
            1.0
        } else {
            self.counts.task_progress.unwrap_or(0.0)
        }
    }

    /// Returns the messages of a request.
    pub(super) fn messages(&self, pictures: Vec<PngPicture>) -> Vec<ChatMessage> {
        let prompt = PlannerPrompt {
            role: self.rules.role.as_deref(),
            actions: self.names.as_deref().unwrap_or_default(),
            instruction: &self.instruction,
            history: &self.history,
            complaint: self.complaint.as_deref(),
            sees: self.rules.sees,
        };
        let system = ChatMessage {
            role: "system",
            text: prompt.system(),
            pictures: Vec::new(),
        };
        let now = ChatMessage {
            role: "user",
            text: prompt.user(),
            pictures,
        };
        std::iter::once(system)
            .chain(self.said.iter().cloned())
            .chain([now])
            .collect()
    }

    /// Records the model's answer to a request and returns the plan that was read from it.
    pub(super) fn answered(
        &mut self,
        asked: &[ChatMessage],
        text: &str,
        is_cut: bool,
    ) -> Result<ActionPlan, Unusable> {
        self.counts.planner_steps += 1;
        text.clone_into(&mut self.answer);
        if self.rules.chat_history {
            self.said.extend(asked.last().map(|message| ChatMessage {
                pictures: Vec::new(),
                ..message.clone()
            }));
            self.said.push(ChatMessage {
                role: "assistant",
                text: text.to_owned(),
                pictures: Vec::new(),
            });
        }
        let count = self.names.as_ref().map_or(0, Vec::len);
        let mut plan = answer::read(text, count);
        if let (Err(Unusable::Form(reason)), true) = (&mut plan, is_cut) {
            reason.push_str("; it is longer than max_tokens allows");
        }
        match &plan {
            Ok(ActionPlan::Actions(actions)) => {
                self.complaint = None;
                self.plan = actions.iter().copied().collect();
            }
            Ok(ActionPlan::Empty) => {
                self.counts.empty_plan = true;
                self.invalid_line(-2, "empty plan", None);
            }
            Err(unusable) => {
                self.counts.planner_output_error +=
                    u64::from(matches!(unusable, Unusable::Form(_)));
                self.counts.num_invalid_actions += 1;
                let reason = unusable.to_string();
                self.invalid_line(-1, "invalid action", Some(&reason));
                self.complaint = Some(reason);
            }
        }
        plan
    }

    /// Writes EmbodiedBench's line for an answer that leads to no action.
    fn invalid_line(&mut self, id: i32, description: &str, reason: Option<&str>) {
        let mut line = json!({
            "last_action_success": 0.0,
            "action_id": id,
            "action_description": description,
            "reasoning": self.answer,
        });
        if let Some(reason) = reason {
            line["env_feedback"] = json!(reason);
        }
        self.lines.push(line);
    }

    /// Records that the episode has ended, perhaps during an action.
    pub(super) fn end(&mut self, observation: &Observation, solved: bool) {
        if self.running.is_some() {
            let outcome = self.hands.cut(observation, solved);
            self.ended(outcome, observation, solved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Discrete, EnvSpec, Feedback};
    use crate::policy::tests::env_spec;

    fn session(rules: PlanningRules) -> PlanningSession {
        let names = ["left", "right", "open"].map(str::to_owned).to_vec();
        let env = EnvSpec {
            discrete: Some(Discrete {
                start: 0,
                count: 3,
                names,
            }),
            ..env_spec()
        };
        PlanningSession::new(Arc::new(rules), Hands::new(&env, None).unwrap())
    }

    fn rules() -> PlanningRules {
        PlanningRules {
            max_invalid_actions: 2,
            chat_history: false,
            role: None,
            sees: false,
        }
    }

    fn seen(success: Option<bool>) -> Observation {
        let mut observation = Observation::empty();
        observation.language = Arc::from("open the door");
        let said = |success| Feedback {
            last_action_success: Some(success),
            ..Feedback::default()
        };
        observation.feedback = success.map(|success| Arc::new(said(success)));
        observation
    }

    fn tell(session: &mut PlanningSession, ids: &str) {
        let entries: Vec<_> = ids
            .split_whitespace()
            .map(|id| format!(r#"{{"action_id": {id}}}"#))
            .collect();
        let text = format!(r#"{{"executable_plan": [{}]}}"#, entries.join(","));
        let messages = session.messages(Vec::new());
        let _ = session.answered(&messages, &text, false);
    }

    /// Returns a session whose model was asked and gave this plan.
    fn planned(ids: &str) -> PlanningSession {
        let mut session = session(rules());
        assert_eq!(session.next(&seen(None)).unwrap(), PlanStep::Ask);
        tell(&mut session, ids);
        session
    }

    fn step(action: f32) -> PlanStep {
        PlanStep::Steps(Chunk::new(1, vec![action]))
    }

    #[test]
    fn a_plan_is_carried_out_action_by_action_and_then_the_model_is_asked_again() {
        let mut session = planned("0 2");
        assert_eq!(session.next(&seen(None)).unwrap(), step(0.0));
        assert_eq!(session.next(&seen(Some(true))).unwrap(), step(2.0));
        assert_eq!(session.next(&seen(Some(true))).unwrap(), PlanStep::Ask);
        let counts = session.counts();
        assert_eq!((counts.num_steps, counts.planner_steps), (2, 1));
        assert_eq!(counts.num_invalid_actions, 0);
        let told = &session.messages(Vec::new())[1].text;
        assert!(
            told.contains("step 1: action id 2, open: succeeded."),
            "{told}"
        );
    }

    #[test]
    fn a_failed_action_ends_its_plan() {
        let mut session = planned("0 1 2");
        session.next(&seen(None)).unwrap();
        assert_eq!(session.next(&seen(Some(false))).unwrap(), PlanStep::Ask);
        assert_eq!(session.counts().num_invalid_actions, 1);
        let lines = session.take_lines();
        assert_eq!(lines[0]["action_id"], 0);
        assert_eq!(lines[0]["last_action_success"], 0.0);
        assert_eq!(lines[0]["instruction"], "open the door");
    }

    #[test]
    fn too_many_invalid_actions_end_the_episode() {
        let mut session = planned("7");
        assert_eq!(session.next(&seen(None)).unwrap(), PlanStep::Ask);
        let messages = session.messages(Vec::new());
        assert!(
            messages[1]
                .text
                .contains("action_id 7 is not one of 0 to 2")
        );
        assert!(session.answered(&messages, "no", false).is_err());
        assert_eq!(session.next(&seen(None)).unwrap(), PlanStep::Stop);
        let counts = session.counts();
        assert_eq!((counts.num_invalid_actions, counts.planner_steps), (2, 2));
        assert_eq!(counts.planner_output_error, 1);
        let lines = session.take_lines();
        assert_eq!([&lines[0]["action_id"], &lines[1]["action_id"]], [-1, -1]);
    }

    #[test]
    fn an_empty_plan_ends_the_episode() {
        let mut session = planned("");
        assert_eq!(session.next(&seen(None)).unwrap(), PlanStep::Stop);
        assert!(session.counts().empty_plan);
        assert_eq!(session.take_lines()[0]["action_id"], -2);
    }

    #[test]
    fn an_answer_that_was_cut_off_says_so() {
        let mut session = session(rules());
        session.next(&seen(None)).unwrap();
        let messages = session.messages(Vec::new());
        let unusable = session.answered(&messages, "{\"language_plan\": \"1.", true);
        let reason = unusable.unwrap_err().to_string();
        assert!(
            reason.ends_with("it is longer than max_tokens allows"),
            "{reason}"
        );
    }

    #[test]
    fn the_last_action_of_an_episode_is_in_its_transcript() {
        let mut session = planned("2");
        session.next(&seen(None)).unwrap();
        session.end(&seen(Some(true)), true);
        let lines = session.take_lines();
        assert_eq!(lines[0]["task_success"], 1.0);
        assert_eq!(lines[0]["env_step"], 1);
        session.end(&seen(Some(true)), true);
        assert_eq!(session.counts().num_steps, 1, "an end is told once");
    }

    #[test]
    fn earlier_turns_go_along_when_they_are_asked_for() {
        let roles = |chat_history| {
            let mut session = session(PlanningRules {
                chat_history,
                ..rules()
            });
            session.next(&seen(None)).unwrap();
            tell(&mut session, "9");
            session
                .messages(Vec::new())
                .iter()
                .map(|message| message.role)
                .collect::<Vec<_>>()
        };
        assert_eq!(roles(false), ["system", "user"]);
        assert_eq!(roles(true), ["system", "user", "assistant", "user"]);
    }
}
