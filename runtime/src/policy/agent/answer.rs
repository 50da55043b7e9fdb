//! Reads a plan of actions from a planner's answer, in whatever form the model has written it.
//!
//! The rules are EmbodiedBench's (`vlm_planner.py`, `json_to_action`). An empty plan means that
//! nothing is left to do. A plan whose first action does not exist is invalid. A plan with a later
//! unknown action is used up to that action.

use std::ops::Range;

use serde_json::Value;

/// Maximum number of actions in one plan: a model that repeats itself fills its whole answer with
/// them.
const LONGEST_PLAN: usize = 64;

/// A parsed plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ActionPlan {
    /// The indices of the actions; at least one.
    Actions(Vec<usize>),
    /// The plan is empty: nothing is left to do.
    Empty,
}

/// The reason why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// The answer contains no plan: EmbodiedBench's `planner_output_error`.
    #[error("the answer is not the JSON that was asked for: {0}")]
    Form(String),
    /// The first action of the plan does not exist.
    #[error("action_id {found} is not one of {} to {}", known.start, known.end.saturating_sub(1))]
    Action {
        /// The action as written in the answer.
        found: String,
        /// The range of valid indices.
        known: Range<usize>,
    },
}

/// Reads the text of an answer; `count` is the number of known actions.
pub(super) fn read(text: &str, count: usize) -> Result<ActionPlan, Unusable> {
    let value = json(text)?;
    let plan = value
        .get("executable_plan")
        .ok_or_else(|| form("it has no `executable_plan`"))?;
    let entries = plan
        .as_array()
        .ok_or_else(|| form("its `executable_plan` is not a list"))?;
    let mut actions = Vec::new();
    for entry in entries.iter().take(LONGEST_PLAN) {
        let given = entry
            .get("action_id")
            .ok_or_else(|| form("an action of its plan has no `action_id`"))?;
        match number(given).filter(|action| *action < count) {
            Some(action) => actions.push(action),
            None if actions.is_empty() => {
                return Err(Unusable::Action {
                    found: given.to_string(),
                    known: 0..count,
                });
            }
            None => break,
        }
    }
    Ok(if actions.is_empty() {
        ActionPlan::Empty
    } else {
        ActionPlan::Actions(actions)
    })
}

fn form(reason: &str) -> Unusable {
    Unusable::Form(reason.to_owned())
}

/// Finds the JSON object in a text that may have reasoning before it and code fences around it.
fn json(text: &str) -> Result<Value, Unusable> {
    let text = text
        .rsplit_once("</think>")
        .map_or(text, |(_, after)| after)
        .trim();
    if text.is_empty() {
        return Err(form("it is empty"));
    }
    let whole = serde_json::from_str::<Value>(text);
    let inner = || {
        let (begin, end) = (text.find('{')?, text.rfind('}')?);
        serde_json::from_str::<Value>(text.get(begin..=end)?).ok()
    };
    match whole {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err(form("it is not an object")),
        Err(err) => inner()
            .filter(Value::is_object)
            .ok_or_else(|| Unusable::Form(err.to_string())),
    }
}

/// Reads an index; models sometimes write numbers as strings.
fn number(value: &Value) -> Option<usize> {
    let whole = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64(),
    };
    whole.and_then(|number| usize::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn plan(ids: Value) -> String {
        let entries: Vec<_> = ids
            .as_array()
            .unwrap()
            .iter()
            .map(|id| json!({"action_id": id, "action_name": "x"}))
            .collect();
        json!({"language_plan": "1. x", "executable_plan": entries}).to_string()
    }

    fn refusal(text: &str) -> String {
        read(text, 4).unwrap_err().to_string()
    }

    #[test]
    fn a_plan_is_read_in_its_order() {
        assert_eq!(
            read(&plan(json!([2, 0, "3"])), 4),
            Ok(ActionPlan::Actions(vec![2, 0, 3]))
        );
        assert_eq!(read(&plan(json!([])), 4), Ok(ActionPlan::Empty));
    }

    #[test]
    fn thoughts_and_fences_around_it_do_no_harm() {
        let fenced = format!(
            "<think>{{maybe}}</think>\nHere it is:\n```json\n{}\n```",
            plan(json!([1]))
        );
        assert_eq!(read(&fenced, 4), Ok(ActionPlan::Actions(vec![1])));
    }

    #[test]
    fn a_plan_that_goes_wrong_later_is_taken_up_to_there() {
        assert_eq!(
            read(&plan(json!([1, 2, 4, 3])), 4),
            Ok(ActionPlan::Actions(vec![1, 2]))
        );
        assert_eq!(
            refusal(&plan(json!([4, 1]))),
            "action_id 4 is not one of 0 to 3"
        );
        assert_eq!(
            refusal(&plan(json!([-1]))),
            "action_id -1 is not one of 0 to 3"
        );
    }

    #[test]
    fn an_answer_without_a_plan_says_what_is_wrong() {
        assert!(
            refusal("I would push it.")
                .starts_with("the answer is not the JSON that was asked for: expected value")
        );
        assert!(refusal("{\"executable_plan\": 3}").ends_with(
            "its `executable_plan` is not a \
            list"
        ));
        assert!(refusal("{}").ends_with("it has no `executable_plan`"));
        assert!(refusal("[1]").ends_with("it is not an object"));
        assert!(refusal("  ").ends_with("it is empty"));
        assert!(
            refusal("{\"executable_plan\": [{\"action\": 1}]}")
                .ends_with("an action of its plan has no `action_id`")
        );
    }

    #[test]
    fn a_plan_without_end_is_cut() {
        let long = plan(json!(vec![1; 10_000]));
        assert_eq!(
            read(&long, 4),
            Ok(ActionPlan::Actions(vec![1; LONGEST_PLAN]))
        );
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "(\\PC|[{}\\[\\]\":,0-9 ]){0,80}", count in 0usize..5) {
            if let Ok(ActionPlan::Actions(actions)) = read(&text, count) {
                prop_assert!(!actions.is_empty() && actions.iter().all(|action| *action < count));
            }
        }
    }
}
