//! The actions in an answer. A server sends the next action, or a chunk of them.

use wire::Value;

use crate::policy::Chunk;

/// What to do about a chunk of which nobody said how much is to be executed.
const SAY_HOW_MANY: &str = "; with action_chunk_length, that many actions of a chunk are executed";

/// What to do about single actions where chunks are expected.
const ONE_AT_A_TIME: &str = "; a server that sends one action needs no action_chunk_length";

/// Returns the actions of an answer that are executed: `chunk_length` of them, or the only one.
///
/// # Errors
/// Says what is wrong with the answer.
pub(super) fn chunk(
    payload: &Value,
    chunk_length: Option<usize>,
    dim: usize,
) -> Result<Chunk, String> {
    let actions = payload.get("actions").or_else(|| payload.get("action"));
    let actions = actions.and_then(numbers);
    let (shape, numbers) = actions.ok_or("its answer has no numbers as `actions`")?;
    let horizon = chunk_length.unwrap_or(1);
    let fits = match shape[..] {
        [width] => width == dim && horizon == 1,
        [1, width] => width == dim && horizon == 1,
        [steps, width] => width == dim && steps >= horizon && chunk_length.is_some(),
        _ => false,
    };
    if !fits {
        let hint = match shape[..] {
            [_, width] if width == dim && chunk_length.is_none() => SAY_HOW_MANY,
            [width] if width == dim => ONE_AT_A_TIME,
            _ => "",
        };
        return Err(format!(
            "its actions are {shape:?}, expected [{dim}] or [{horizon} or more, {dim}]{hint}"
        ));
    }
    Ok(Chunk::new(dim, numbers[..horizon * dim].to_vec()))
}

/// Returns shape and numbers of an array, or of a list of numbers or of such lists.
fn numbers(value: &Value) -> Option<(Vec<usize>, Vec<f32>)> {
    match value {
        Value::Array(array) => Some((array.shape().to_vec(), array.to_f32())),
        Value::List(items) if items.iter().any(|item| matches!(item, Value::List(_))) => {
            let rows: Option<Vec<Vec<f32>>> = items.iter().map(row).collect();
            let rows = rows?;
            let width = rows.first()?.len();
            let is_even = rows.iter().all(|row| row.len() == width);
            is_even.then(|| (vec![rows.len(), width], rows.concat()))
        }
        list @ Value::List(_) => row(list).map(|row| (vec![row.len()], row)),
        _ => None,
    }
}

fn row(value: &Value) -> Option<Vec<f32>> {
    let number = |value: &Value| match value {
        Value::Int(number) => Some(*number as f32),
        Value::Large(number) => Some(*number as f32),
        Value::Float(number) => Some(*number as f32),
        _ => None,
    };
    value.as_list()?.iter().map(number).collect()
}
