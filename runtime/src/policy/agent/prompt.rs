//! Builds a planner's prompt. The part that is equal for all episodes comes first, so that servers
//! with a prefix cache can reuse it.

use std::fmt::Write as _;

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

const ROLE: &str = "You are the planner of a robot. You are told what it shall do and which actions \
    it knows. Plan the actions that fulfil the instruction, beginning with the current state. They \
    are carried out one after another until one fails or the plan is at its end; then you are told \
    what came of them and plan again.";

/// Maximum number of past actions in a request.
const LONGEST_HISTORY: usize = 60;

/// Returns the part that does not change within an episode, with another role if there is one.
pub(super) fn system(role: Option<&str>, actions: &[String]) -> String {
    let mut text = role.unwrap_or(ROLE).trim_end().to_owned();
    text.push_str("\n\n## Available actions\n");
    for (id, name) in actions.iter().enumerate() {
        let _ = writeln!(text, "action id {id}: {name}");
    }
    text
}

/// Returns what the answer has to look like, for a number of actions.
pub(super) fn format(sees: bool, actions: usize) -> String {
    let last = actions.saturating_sub(1);
    let description = if sees {
        "\"visual_state_description\": \"what the pictures show now\", "
    } else {
        ""
    };
    format!(
        "\nAnswer with one JSON object and nothing else:\n{{{description}\
         \"reasoning_and_reflection\": \"what was done so far and what came of it\", \
         \"language_plan\": \"the plan in words\", \"executable_plan\": [{{\"action_id\": 0, \
         \"action_name\": \"name of action 0\"}}]}}\nEach action_id is a whole number from 0 to \
         {last}. An empty executable_plan says that nothing is left to do, and ends the episode."
    )
}

/// Adds what was done so far, oldest first.
pub(super) fn tell_history(text: &mut String, history: &[Executed], actions: &[String]) {
    if history.is_empty() {
        return;
    }
    text.push_str("\n## Actions so far\n");
    let left_out = history.len().saturating_sub(LONGEST_HISTORY);
    if left_out > 0 {
        let _ = writeln!(text, "(the first {left_out} are left out)");
    }
    for (step, executed) in history.iter().enumerate().skip(left_out) {
        let Executed {
            action,
            success,
            feedback,
        } = executed;
        let name = actions.get(*action).map_or("", String::as_str);
        let outcome = if *success { "succeeded" } else { "failed" };
        let _ = writeln!(
            text,
            "step {step}: action id {action}, {name}: {outcome}. {feedback}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec![
            "move behind the puck".to_owned(),
            "push the puck".to_owned(),
        ]
    }

    #[test]
    fn actions_stand_with_their_numbers_in_what_does_not_change() {
        let text = system(None, &names());
        let actions = "\naction id 0: move behind the puck\naction id 1: push the puck\n";
        assert!(text.ends_with(actions), "{text}");
        let own = system(Some("Be quick.\n"), &names());
        assert!(own.starts_with("Be quick.\n\n## Available actions\n"));
    }

    #[test]
    fn what_came_of_actions_is_told_and_a_long_past_is_cut() {
        let told = |count| {
            let failed = Executed {
                action: 1,
                success: false,
                feedback: "The hand is not behind the puck.".to_owned(),
            };
            let mut text = String::new();
            tell_history(&mut text, &vec![failed; count], &names());
            text
        };
        assert_eq!(told(0), "");
        let step = "step 0: action id 1, push the puck: failed. The hand is not behind the puck.\n";
        assert!(told(1).contains(step), "{}", told(1));
        let many = told(63);
        let left = "(the first 3 are left out)\nstep 3: ";
        assert!(many.contains(left) && !many.contains("step 2: "), "{many}");
    }

    #[test]
    fn what_is_not_seen_need_not_be_described() {
        let text = format(true, 2);
        assert!(text.contains("from 0 to 1.") && text.contains("visual_state"));
        assert!(!format(false, 2).contains("visual_state"));
    }
}
