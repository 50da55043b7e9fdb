//! Builds a planner's prompt. The part that is equal for all episodes comes first, so that servers
//! with a prefix cache can reuse it.

use std::fmt::Write as _;

/// The content of a request.
pub(super) struct PlannerPrompt<'a> {
    /// Role of the model, replacing [`ROLE`].
    pub(super) role: Option<&'a str>,
    /// Names of the actions, by index.
    pub(super) actions: &'a [String],
    /// The task as text.
    pub(super) instruction: &'a str,
    /// The executed actions, oldest first.
    pub(super) history: &'a [Executed],
    /// The reason why the last answer could not be used.
    pub(super) complaint: Option<&'a str>,
    /// Whether the model sees pictures.
    pub(super) sees: bool,
}

/// An action that was executed or attempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Executed {
    /// The action's index.
    pub(super) action: usize,
    /// Whether the action succeeded.
    pub(super) success: bool,
    /// The environment's feedback.
    pub(super) feedback: String,
}

const ROLE: &str = "You are the planner of a robot. You are told what it shall do and which actions it knows. Plan the \
actions that fulfil the instruction, beginning with the current state. They are carried out one after another until \
one fails or the plan is at its end; then you are told what came of them and plan again.";

/// Maximum number of past actions in a request.
const LONGEST_HISTORY: usize = 60;

impl PlannerPrompt<'_> {
    /// Returns the part that does not change within an episode.
    pub(super) fn system(&self) -> String {
        let mut text = self.role.unwrap_or(ROLE).trim_end().to_owned();
        text.push_str("\n\n## Available actions\n");
        for (id, name) in self.actions.iter().enumerate() {
            let _ = writeln!(text, "action id {id}: {name}");
        }
        text
    }

    /// Returns the part that describes the current situation.
    pub(super) fn user(&self) -> String {
        let mut text = format!("## Instruction\n{}\n", self.instruction.trim());
        self.tell_history(&mut text);
        if let Some(complaint) = self.complaint {
            let _ = write!(
                text,
                "\n## Your last answer\nIt could not be used: {complaint}.\n"
            );
        }
        let last = self.actions.len().saturating_sub(1);
        let description = if self.sees {
            "\"visual_state_description\": \"what the pictures show now\", "
        } else {
            ""
        };
        let _ = write!(
            text,
            "\nAnswer with one JSON object and nothing else:\n{{{description}\"reasoning_and_reflection\": \"what was done \
             so far and what came of it\", \"language_plan\": \"the plan in words\", \"executable_plan\": [{{\"action_id\": 0, \
             \"action_name\": \"name of action 0\"}}]}}\nEach action_id is a whole number from 0 to {last}. An empty \
             executable_plan says that nothing is left to do, and ends the episode."
        );
        text
    }

    fn tell_history(&self, text: &mut String) {
        if self.history.is_empty() {
            return;
        }
        text.push_str("\n## Actions so far\n");
        let left_out = self.history.len().saturating_sub(LONGEST_HISTORY);
        if left_out > 0 {
            let _ = writeln!(text, "(the first {left_out} are left out)");
        }
        for (step, executed) in self.history.iter().enumerate().skip(left_out) {
            let Executed {
                action,
                success,
                feedback,
            } = executed;
            let name = self.actions.get(*action).map_or("", String::as_str);
            let outcome = if *success { "succeeded" } else { "failed" };
            let _ = writeln!(
                text,
                "step {step}: action id {action}, {name}: {outcome}. {feedback}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt<'a>(actions: &'a [String], history: &'a [Executed]) -> PlannerPrompt<'a> {
        PlannerPrompt {
            role: None,
            actions,
            instruction: "push the puck",
            history,
            complaint: None,
            sees: true,
        }
    }

    fn names() -> Vec<String> {
        vec![
            "move behind the puck".to_owned(),
            "push the puck".to_owned(),
        ]
    }

    #[test]
    fn actions_stand_with_their_numbers_in_what_does_not_change() {
        let names = names();
        let system = prompt(&names, &[]).system();
        let actions = "\naction id 0: move behind the puck\naction id 1: push the puck\n";
        assert!(system.ends_with(actions), "{system}");
        let own = PlannerPrompt {
            role: Some("Be quick.\n"),
            ..prompt(&names, &[])
        }
        .system();
        assert!(own.starts_with("Be quick.\n\n## Available actions\n"));
    }

    #[test]
    fn what_came_of_actions_is_told_and_a_long_past_is_cut() {
        let names = names();
        let failed = Executed {
            action: 1,
            success: false,
            feedback: "The hand is not behind the puck.".to_owned(),
        };
        let one = [failed.clone()];
        let user = prompt(&names, &one).user();
        let step = "step 0: action id 1, push the puck: failed. The hand is not behind the puck.\n";
        assert!(user.contains(step), "{user}");
        assert!(user.contains("from 0 to 1."));
        let many = vec![failed; 63];
        let user = prompt(&names, &many).user();
        assert!(
            user.contains("(the first 3 are left out)\nstep 3: "),
            "{user}"
        );
        assert!(!user.contains("step 2: "), "{user}");
    }

    #[test]
    fn a_useless_answer_is_told_why() {
        let names = names();
        let user = PlannerPrompt {
            complaint: Some("action_id 9 is not one of 0 to 1"),
            ..prompt(&names, &[])
        }
        .user();
        assert!(user.contains("It could not be used: action_id 9 is not one of 0 to 1.\n"));
        assert!(!prompt(&names, &[]).user().contains("Your last answer"));
        let blind = PlannerPrompt {
            sees: false,
            ..prompt(&names, &[])
        };
        assert!(!blind.user().contains("visual_state"));
    }
}
