//! The product of the values in a grid.

use serde_json::{Map, Value};

use crate::file::variations::{MAX_GROUP_BYTES, MAX_VARIANTS, Overrides, VariantBytes, name_of};
use crate::refusal::Refusal;

/// The values of an argument in a grid.
struct Axis<'a> {
    argument: &'a str,
    values: &'a [Value],
}

/// Returns the combinations of a grid, the last argument changing fastest. Their group is the given
/// one, otherwise the argument; if there are several arguments, each value is a group.
pub(super) fn combinations(
    place: &str,
    grid: &Map<String, Value>,
    group: Option<String>,
    bytes: &mut VariantBytes,
) -> Result<Vec<Overrides>, Refusal> {
    let axes = axes(place, grid)?;
    let count = axes.iter().map(|axis| axis.values.len()).product();
    for axis in &axes {
        let times = count / axis.values.len();
        let sizes = axis.values.iter().map(|value| value.to_string().len());
        bytes
            .add(axis.argument.len() + sizes.sum::<usize>(), times)
            .map_err(|reason| Refusal::at(place, reason))?;
    }
    let combination = |mut nth: usize| {
        let mut chosen = vec![0; axes.len()];
        for (axis, chosen) in axes.iter().zip(&mut chosen).rev() {
            (nth, *chosen) = (nth / axis.values.len(), nth % axis.values.len());
        }
        let pair = |(axis, chosen): (&Axis, usize)| {
            (axis.argument.to_owned(), axis.values[chosen].clone())
        };
        axes.iter().zip(chosen).map(pair).collect()
    };
    let overrides = |values: Map<String, Value>| Overrides {
        name: name_of(&values),
        groups: group
            .as_ref()
            .map_or_else(|| groups(&values), |group| vec![group.clone()]),
        values,
        is_of_grid: true,
    };
    Ok((0..count).map(combination).map(overrides).collect())
}

/// Checks the arguments of a grid, and that it does not have too many combinations.
fn axes<'a>(place: &str, grid: &'a Map<String, Value>) -> Result<Vec<Axis<'a>>, Refusal> {
    if grid.is_empty() {
        let reason = "it is empty, expected an argument with its values";
        return Err(Refusal::at(place, reason));
    }
    let mut axes = Vec::new();
    let mut count = 1_usize;
    for (argument, values) in grid {
        let of_argument = format!("{place}.{}", argument.escape_debug());
        let Value::Array(values) = values else {
            let wanted = "expected a list of values";
            return Err(Refusal::found(of_argument, values, wanted));
        };
        if values.is_empty() {
            let reason = "the list is empty, expected at least one value";
            return Err(Refusal::at(of_argument, reason));
        }
        count = count.saturating_mul(values.len());
        axes.push(Axis { argument, values });
    }
    if count > MAX_VARIANTS {
        let reason = format!("it has {count} combinations, expected at most {MAX_VARIANTS}");
        return Err(Refusal::at(place, reason));
    }
    Ok(axes)
}

fn groups(values: &Map<String, Value>) -> Vec<String> {
    let level = |(argument, value): (&String, &Value)| {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut level = format!("{argument}={text}");
        level.truncate(level.floor_char_boundary(MAX_GROUP_BYTES));
        level
    };
    match values.len() {
        1 => values.keys().cloned().collect(),
        _ => values.iter().map(level).collect(),
    }
}
