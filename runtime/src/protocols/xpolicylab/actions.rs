//! The actions of an answer, in the order of the environment's action vector.
//!
//! XPolicyLab's policies return a list with a map for each step,
//! `{"arm_joint_state": [6], "ee_joint_state": [1]}`. Some return a single map, or numbers without
//! names: `[steps, width]`.

use wire::Value;

use crate::policy::Chunk;

/// Maximum number of actions of an answer that are used.
pub(super) const MOST_ACTIONS: usize = 4096;

/// Returns the first `most` actions of the payload of an `infer_result`: the values of `keys`, one
/// after the other.
///
/// # Errors
/// Says what is wrong with the first action that does not fit; the text follows the name of the
/// server.
pub fn read_chunk(
    payload: &Value,
    keys: &[String],
    dim: usize,
    most: usize,
) -> Result<Chunk, String> {
    let most = most.min(MOST_ACTIONS);
    let values = match payload.get("actions") {
        Some(Value::List(steps)) if !steps.is_empty() => {
            let mut values = Vec::new();
            for (step, action) in steps.iter().take(most).enumerate() {
                values.extend(read_action(step, action, keys, dim)?);
            }
            values
        }
        Some(action @ Value::Map(_)) => read_action(0, action, keys, dim)?,
        Some(Value::Array(array)) => match *array.shape() {
            [steps, width] if steps > 0 && width == dim => {
                let used = steps.min(most) * dim;
                array.to_f32()[..used].to_vec()
            }
            [width] if width == dim => array.to_f32(),
            ref found => {
                return Err(format!(
                    "its actions are {found:?}, expected [1 or more, {dim}]"
                ));
            }
        },
        _ => return Err("its answer has no `actions`".to_owned()),
    };
    Ok(Chunk::new(dim, values))
}

/// Returns the numbers of one action.
fn read_action(
    step: usize,
    action: &Value,
    keys: &[String],
    dim: usize,
) -> Result<Vec<f32>, String> {
    let (values, found) = match action {
        Value::Map(members) => {
            let (mut values, mut found) = (Vec::new(), Vec::new());
            for key in keys {
                let part = action.get(key).ok_or_else(|| {
                    let found = shown(members.iter().map(|(key, _)| key.shown()));
                    format!("its action {step} has no `{key}`; it has {found}")
                })?;
                let part = numbers(step, part)?;
                found.push(format!("{key} [{}]", part.len()));
                values.extend(part);
            }
            (values, found.join(" + "))
        }
        unnamed => {
            let values = numbers(step, unnamed)?;
            let found = format!("{} numbers", values.len());
            (values, found)
        }
    };
    match values.len() == dim {
        true => Ok(values),
        false => Err(format!(
            "its action {step} has {found}, the environment takes {dim} numbers"
        )),
    }
}

/// Reads a vector of numbers, or a single one.
fn numbers(step: usize, value: &Value) -> Result<Vec<f32>, String> {
    let wrong = |value: &Value| {
        let found = value.type_name();
        format!("its action {step} has {found} where a list of numbers is expected")
    };
    match value {
        Value::Array(array) if array.shape().len() <= 1 => Ok(array.to_f32()),
        Value::List(items) => {
            let number = |item: &Value| item.as_f32().ok_or_else(|| wrong(item));
            items.iter().map(number).collect()
        }
        single => {
            let number = single.as_f32().ok_or_else(|| wrong(single));
            number.map(|number| vec![number])
        }
    }
}

/// Returns names as a list of bounded length, because the server chooses them.
fn shown(names: impl Iterator<Item = String>) -> String {
    const MOST_NAMES: usize = 20;
    let mut names: Vec<String> = names.take(MOST_NAMES + 1).collect();
    match names.len() {
        0 => "no keys".to_owned(),
        count => {
            if count > MOST_NAMES {
                names[MOST_NAMES] = "…".to_owned();
            }
            names.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::{Array, Key};

    use super::*;

    fn keys() -> Vec<String> {
        ["arm_joint_state", "ee_joint_state"]
            .map(str::to_owned)
            .to_vec()
    }

    fn chunk(actions: Value, most: usize) -> Result<Chunk, String> {
        let payload = Value::map([("actions", actions), ("latency_ms", 1.5.into())]);
        read_chunk(&payload, &keys(), 3, most)
    }

    fn action(arm: Value, hand: Value) -> Value {
        let more = ("ee_pose", Value::Nil);
        Value::map([("ee_joint_state", hand), ("arm_joint_state", arm), more])
    }

    fn vector(numbers: &[f32]) -> Value {
        Array::of_f32(&[numbers.len()], numbers).into()
    }

    #[test]
    fn an_action_is_put_together_in_the_order_of_the_keys() {
        let first = action(vector(&[1.0, 2.0]), vector(&[3.0]));
        let plain = action(vec![4i64.into(), 5.5.into()].into(), 6i64.into());
        let three = [first.clone(), plain, first].to_vec();
        let wanted = vec![1.0, 2.0, 3.0, 4.0, 5.5, 6.0];
        assert_eq!(chunk(three.into(), 2), Ok(Chunk::new(3, wanted)));
    }

    #[test]
    fn a_single_action_and_actions_without_names_are_read() {
        let one = action(vector(&[1.0, 2.0]), vector(&[3.0]));
        assert_eq!(chunk(one, 9), Ok(Chunk::new(3, vec![1.0, 2.0, 3.0])));
        let numbers: Vec<f32> = (0..12).map(|number| number as f32).collect();
        let table = Array::of_f32(&[4, 3], &numbers);
        assert_eq!(
            chunk(table.into(), 2),
            Ok(Chunk::new(3, numbers[..6].to_vec()))
        );
        let rows = vec![vector(&numbers[..3]), vector(&numbers[3..6])];
        assert_eq!(
            chunk(rows.into(), 9),
            Ok(Chunk::new(3, numbers[..6].to_vec()))
        );
    }

    #[test]
    fn an_answer_that_does_not_fit_is_refused_with_both_sides() {
        let dual = Value::map([("left_arm_joint_state", vector(&[1.0]))]);
        let long = action(vector(&[1.0, 2.0, 3.0]), vector(&[4.0]));
        for (actions, reason) in [
            (Value::Nil, "its answer has no `actions`"),
            (Vec::new().into(), "its answer has no `actions`"),
            (
                vec![dual].into(),
                "its action 0 has no `arm_joint_state`; it has left_arm_joint_state",
            ),
            (
                vec![long].into(),
                "its action 0 has arm_joint_state [3] + ee_joint_state [1], the environment takes 3 numbers",
            ),
            (
                vec![vector(&[1.0])].into(),
                "its action 0 has 1 numbers, the environment takes 3 numbers",
            ),
            (
                vec![action("fast".into(), Value::Nil)].into(),
                "its action 0 has str where a list of numbers is expected",
            ),
            (
                Array::of_f32(&[2, 2], &[0.0; 4]).into(),
                "its actions are [2, 2], expected [1 or more, 3]",
            ),
            (
                Array::of_f32(&[0, 3], &[]).into(),
                "its actions are [0, 3], expected [1 or more, 3]",
            ),
        ] {
            assert_eq!(chunk(actions, 9), Err(reason.to_owned()));
        }
        let many = (0..1000).map(|number| (Key::from(format!("k{number}").as_str()), Value::Nil));
        let refusal = chunk(vec![Value::Map(many.collect())].into(), 9);
        assert!(refusal.unwrap_err().len() < 300);
    }
}
