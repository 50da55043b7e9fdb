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

use serde::Serialize;
use serde_json::{Value, json};

use crate::env::Observation;
use crate::policy::agent::AgentSettings;
use crate::policy::agent::chat::ChatMessage;
use crate::policy::agent::hands::Hands;
use crate::policy::agent::prompt::{self, Executed, Unusable};
use crate::policy::scripted::skill::ActionProgress;
use crate::policy::{PolicyError, RowAnswer};

/// The metrics of an episode, under EmbodiedBench's names where it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Counts {
    /// Number of tokens in all answers.
    pub(super) completion_tokens: u64,
    /// Whether the model answered that nothing is left to do: 0 or 1.
    pub(super) empty_plan: u64,
    /// Share of the invalid actions in the steps.
    pub(super) num_invalid_action_ratio: f64,
    /// Number of unusable answers and failed actions.
    pub(super) num_invalid_actions: u64,
    /// Number of actions that were executed or attempted.
    pub(super) num_steps: u64,
    /// Time for all answers.
    pub(super) planner_latency_s: f64,
    /// Number of answers without a plan.
    pub(super) planner_output_error: u64,
    /// Number of requests that were sent again.
    pub(super) planner_retries: u64,
    /// Number of answers from the model.
    pub(super) planner_steps: u64,
    /// Number of tokens in all requests.
    pub(super) prompt_tokens: u64,
    /// The environment's last report of the progress, from 0 to 1; 1 if the task is solved.
    pub(super) task_progress: f64,
}

/// The state of one episode.
pub(super) struct PlanningSession {
    settings: Arc<AgentSettings>,
    hands: Hands,
    /// Names of the actions.
    names: Vec<String>,
    /// The task as text.
    pub(super) instruction: String,
    plan: VecDeque<usize>,
    running: Option<usize>,
    history: Vec<Executed>,
    complaint: Option<String>,
    /// Earlier requests and answers.
    said: Vec<ChatMessage>,
    answer: String,
    /// What is reported of the episode.
    pub(super) counts: Counts,
    /// Lines of the transcript that were not written yet.
    pub(super) lines: Vec<Value>,
}

impl PlanningSession {
    /// Creates a session that begins with this observation.
    pub(super) fn new(settings: Arc<AgentSettings>, hands: Hands, first: &Observation) -> Self {
        Self {
            settings,
            names: hands.names(first),
            hands,
            instruction: first.language.to_string(),
            plan: VecDeque::new(),
            running: None,
            history: Vec::new(),
            complaint: None,
            said: Vec::new(),
            answer: String::new(),
            counts: Counts::default(),
            lines: Vec::new(),
        }
    }

    /// Returns what to do about an observation; `None` to ask the model.
    ///
    /// # Errors
    /// Returns an error if the observation is incomplete.
    pub(super) fn next(&mut self, seen: &Observation) -> Result<Option<RowAnswer>, PolicyError> {
        let mut doing = match self.running {
            Some(_) => Some(self.hands.go_on(seen)?),
            None => None,
        };
        loop {
            match doing {
                Some(ActionProgress::Steps(chunk)) => return Ok(Some(RowAnswer::Chunk(chunk))),
                Some(ActionProgress::Ended { success, feedback }) => {
                    self.ended(success, feedback, seen, false);
                }
                None => {}
            }
            let invalid = self.counts.num_invalid_actions;
            if self.counts.empty_plan > 0 || invalid >= self.settings.job.max_invalid_actions {
                return Ok(Some(RowAnswer::End));
            }
            let Some(action) = self.plan.pop_front() else {
                return Ok(None);
            };
            self.running = Some(action);
            doing = Some(self.hands.begin(action, seen)?);
        }
    }

    /// Records that the running action has ended.
    fn ended(&mut self, success: bool, feedback: String, seen: &Observation, solved: bool) {
        let Some(action) = self.running.take() else {
            return;
        };
        let counts = &mut self.counts;
        counts.num_steps += 1;
        let said = seen.feedback.as_ref();
        if let Some(progress) = said.and_then(|feedback| feedback.task_progress) {
            counts.task_progress = progress;
        }
        if solved {
            counts.task_progress = 1.0;
        }
        if !success {
            counts.num_invalid_actions += 1;
            self.plan.clear();
        }
        self.lines.push(json!({
            "task_success": f64::from(u8::from(solved)),
            "task_progress": counts.task_progress,
            "instruction": self.instruction,
            "env_step": counts.num_steps,
            "env_feedback": feedback,
            "last_action_success": f64::from(u8::from(success)),
            "action_id": action,
            "action_description": self.names.get(action),
            "reasoning": self.answer,
        }));
        self.history.push(Executed {
            action,
            success,
            feedback,
        });
    }

    /// Returns the messages of a request.
    pub(super) fn messages(&self) -> Vec<ChatMessage> {
        let system = prompt::system(self.settings.role.as_deref(), &self.names);
        let mut user = format!("## Instruction\n{}\n", self.instruction.trim());
        prompt::tell_history(&mut user, &self.history, &self.names);
        if let Some(complaint) = &self.complaint {
            user += &format!("\n## Your last answer\nIt could not be used: {complaint}.\n");
        }
        user += &prompt::format(!self.settings.job.language_only, self.names.len());
        let mut messages = vec![message("system", system)];
        messages.extend(self.said.iter().cloned());
        messages.push(message("user", user));
        messages
    }

    /// Records the model's answer to a request.
    ///
    /// # Errors
    /// Returns the reason if there is no plan in it.
    pub(super) fn answered(
        &mut self,
        asked: &[ChatMessage],
        text: &str,
        is_cut: bool,
    ) -> Result<(), Unusable> {
        self.counts.planner_steps += 1;
        text.clone_into(&mut self.answer);
        if self.settings.job.chat_history {
            self.said.extend(asked.last().cloned());
            self.said.push(message("assistant", text.to_owned()));
        }
        match prompt::read(text, self.names.len()) {
            Ok(plan) => {
                if plan.is_empty() {
                    self.counts.empty_plan = 1;
                    self.invalid_line(-2, "empty plan", None);
                }
                (self.plan, self.complaint) = (plan.into(), None);
                Ok(())
            }
            Err(mut unusable) => {
                if let Unusable::Form(reason) = &mut unusable {
                    self.counts.planner_output_error += 1;
                    if is_cut {
                        reason.push_str("; it is longer than max_tokens allows");
                    }
                }
                self.counts.num_invalid_actions += 1;
                let reason = unusable.to_string();
                self.invalid_line(-1, "invalid action", Some(&reason));
                self.complaint = Some(reason);
                Err(unusable)
            }
        }
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
    pub(super) fn end(&mut self, seen: &Observation, solved: bool) {
        if self.running.is_some()
            && let ActionProgress::Ended { success, feedback } = self.hands.cut(seen, solved)
        {
            self.ended(success, feedback, seen, solved);
        }
        let counts = &mut self.counts;
        if solved {
            counts.task_progress = 1.0;
        }
        if counts.num_steps > 0 {
            counts.num_invalid_action_ratio =
                counts.num_invalid_actions as f64 / counts.num_steps as f64;
        }
    }
}

fn message(role: &'static str, text: String) -> ChatMessage {
    ChatMessage { role, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Discrete, EnvSpec, Feedback};
    use crate::policy::Chunk;
    use crate::policy::agent::tests::settings;
    use crate::policy::tests::env_spec;

    fn session(more: Value) -> PlanningSession {
        let names = ["left", "right", "open"].map(str::to_owned).to_vec();
        let env = EnvSpec {
            discrete: Some(Discrete {
                start: 0,
                count: 3,
                names,
            }),
            ..env_spec()
        };
        let hands = Hands::new(&env, None).unwrap();
        PlanningSession::new(Arc::new(settings(more)), hands, &seen(None))
    }

    fn two_errors() -> Value {
        json!({"max_invalid_actions": 2, "language_only": true})
    }

    fn seen(success: Option<bool>) -> Observation {
        let mut observation = Observation {
            language: Arc::from("open the door"),
            ..Observation::default()
        };
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
        let messages = session.messages();
        let _ = session.answered(&messages, &text, false);
    }

    /// Returns a session whose model was asked and gave this plan.
    fn planned(ids: &str) -> PlanningSession {
        let mut session = session(two_errors());
        assert_eq!(session.next(&seen(None)).unwrap(), None);
        tell(&mut session, ids);
        session
    }

    fn step(action: f32) -> Option<RowAnswer> {
        Some(RowAnswer::Chunk(Chunk::new(1, vec![action])))
    }

    #[test]
    fn a_plan_is_carried_out_action_by_action_and_then_the_model_is_asked_again() {
        let mut session = planned("0 2");
        assert_eq!(session.next(&seen(None)).unwrap(), step(0.0));
        assert_eq!(session.next(&seen(Some(true))).unwrap(), step(2.0));
        assert_eq!(session.next(&seen(Some(true))).unwrap(), None);
        let counts = session.counts;
        assert_eq!((counts.num_steps, counts.planner_steps), (2, 1));
        assert_eq!(counts.num_invalid_actions, 0);
        let told = &session.messages()[1].text;
        assert!(
            told.contains("step 1: action id 2, open: succeeded."),
            "{told}"
        );
    }

    #[test]
    fn a_failed_action_ends_its_plan() {
        let mut session = planned("0 1 2");
        session.next(&seen(None)).unwrap();
        assert_eq!(session.next(&seen(Some(false))).unwrap(), None);
        assert_eq!(session.counts.num_invalid_actions, 1);
        let lines = session.lines;
        assert_eq!(lines[0]["action_id"], 0);
        assert_eq!(lines[0]["last_action_success"], 0.0);
        assert_eq!(lines[0]["instruction"], "open the door");
    }

    #[test]
    fn too_many_invalid_actions_end_the_episode() {
        let mut session = planned("7");
        assert_eq!(session.next(&seen(None)).unwrap(), None);
        let messages = session.messages();
        assert!(
            messages[1]
                .text
                .contains("action_id 7 is not one of 0 to 2")
        );
        assert!(session.answered(&messages, "no", false).is_err());
        assert_eq!(session.next(&seen(None)).unwrap(), Some(RowAnswer::End));
        let counts = session.counts;
        assert_eq!((counts.num_invalid_actions, counts.planner_steps), (2, 2));
        assert_eq!(counts.planner_output_error, 1);
        let lines = session.lines;
        assert_eq!([&lines[0]["action_id"], &lines[1]["action_id"]], [-1, -1]);
    }

    #[test]
    fn an_empty_plan_ends_the_episode() {
        let mut session = planned("");
        assert_eq!(session.next(&seen(None)).unwrap(), Some(RowAnswer::End));
        assert_eq!(session.counts.empty_plan, 1);
        assert_eq!(session.lines[0]["action_id"], -2);
    }

    #[test]
    fn an_answer_that_was_cut_off_says_so() {
        let mut session = session(two_errors());
        session.next(&seen(None)).unwrap();
        let messages = session.messages();
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
        let line = &session.lines[0];
        assert_eq!(
            [&line["task_success"], &line["env_step"]],
            [&json!(1.0), &json!(1)]
        );
        session.end(&seen(Some(true)), true);
        assert_eq!(session.counts.num_steps, 1, "an end is told once");
    }

    #[test]
    fn earlier_turns_go_along_when_they_are_asked_for() {
        let roles = |chat_history| {
            let mut session = session(json!({ "chat_history": chat_history }));
            session.next(&seen(None)).unwrap();
            tell(&mut session, "9");
            session
                .messages()
                .iter()
                .map(|message| message.role)
                .collect::<Vec<_>>()
        };
        assert_eq!(roles(false), ["system", "user"]);
        assert_eq!(roles(true), ["system", "user", "assistant", "user"]);
    }
}
