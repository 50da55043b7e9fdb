//! What a planner is asked, and the plan of actions in its answer, in whatever form the model has
//! written it.
//!
//! The part of a prompt that is equal for all episodes comes first, so that servers with a prefix
//! cache can reuse it. The rules for answers are EmbodiedBench's (`vlm_planner.py`,
//! `json_to_action`). An empty plan means that nothing is left to do. A plan whose first action
//! does not exist is invalid. A plan with a later unknown action is used up to that action.

use std::fmt::Write as _;

use serde_json::Value;

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

/// Maximum number of actions in one plan: a model that repeats itself fills its whole answer with
/// them.
const LONGEST_PLAN: usize = 64;

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

/// The reason why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// The answer contains no plan: EmbodiedBench's `planner_output_error`.
    #[error("the answer is not the JSON that was asked for: {0}")]
    Form(String),
    /// The first action of the plan does not exist.
    #[error("{0}")]
    Action(String),
}

/// Returns the indices of the planned actions from the text of an answer; `count` is the number of
/// known actions.
pub(super) fn read(text: &str, count: usize) -> Result<Vec<usize>, Unusable> {
    let form = |reason: &str| Unusable::Form(reason.to_owned());
    let value = json(text).map_err(Unusable::Form)?;
    let plan = value.get("executable_plan");
    let plan = plan.ok_or_else(|| form("it has no `executable_plan`"))?;
    let entries = plan.as_array();
    let entries = entries.ok_or_else(|| form("its `executable_plan` is not a list"))?;
    let mut actions = Vec::new();
    for entry in entries.iter().take(LONGEST_PLAN) {
        let given = entry.get("action_id");
        let given = given.ok_or_else(|| form("an action of its plan has no `action_id`"))?;
        match number(given).filter(|action| *action < count) {
            Some(action) => actions.push(action),
            None if actions.is_empty() => {
                let last = count.saturating_sub(1);
                let reason = format!("action_id {given} is not one of 0 to {last}");
                return Err(Unusable::Action(reason));
            }
            None => break,
        }
    }
    Ok(actions)
}

/// Finds the JSON object in a text that may have reasoning before it and code fences around it.
fn json(text: &str) -> Result<Value, String> {
    let text = text.rsplit_once("</think>").map_or(text, |(_, text)| text);
    let text = text.trim();
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err("it is not an object".to_owned()),
        Err(err) => {
            let inner = text.find('{').zip(text.rfind('}'));
            let inner = inner.and_then(|(begin, end)| text.get(begin..=end));
            let value = inner.and_then(|text| serde_json::from_str(text).ok());
            value.filter(Value::is_object).ok_or(err.to_string())
        }
    }
}

/// Reads an index; models sometimes write numbers as strings.
fn number(value: &Value) -> Option<usize> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64()?.try_into().ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_read_up_to_what_is_wrong_in_it() {
        rig::cases::check("src/policy/agent/answers.txt", |text| match read(text, 4) {
            Ok(plan) => format!("{plan:?}"),
            Err(reason) => reason.to_string(),
        });
        assert!(
            read("  ", 4)
                .unwrap_err()
                .to_string()
                .ends_with("it is empty")
        );
    }

    #[test]
    fn a_plan_without_end_is_cut() {
        let entries = vec![json!({"action_id": 1}); 10_000];
        let long = json!({ "executable_plan": entries }).to_string();
        assert_eq!(read(&long, 4), Ok(vec![1; LONGEST_PLAN]));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "(\\PC|[{}\\[\\]\":,0-9 ]){0,80}", count in 0usize..5) {
            if let Ok(actions) = read(&text, count) {
                prop_assert!(actions.iter().all(|action| *action < count));
            }
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
