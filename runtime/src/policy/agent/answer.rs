//! Reads a plan of actions from a planner's answer, in whatever form the model has written it.
//!
//! The rules are EmbodiedBench's (`vlm_planner.py`, `json_to_action`). An empty plan means that
//! nothing is left to do. A plan whose first action does not exist is invalid. A plan with a later
//! unknown action is used up to that action.

use serde_json::Value;

/// Maximum number of actions in one plan: a model that repeats itself fills its whole answer with
/// them.
const LONGEST_PLAN: usize = 64;

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
}
