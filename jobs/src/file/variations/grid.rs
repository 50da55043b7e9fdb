//! The product of the values in a grid.

use serde_json::{Map, Value};

use crate::file::variations::{GRID, MAX_GROUP_BYTES, MAX_VARIANTS, Overrides, VariantBytes, name};
use crate::refusal::show;

/// A field that is refused, and why.
type Wrong = (String, String);

/// The values of an argument in a grid.
struct Axis<'a> {
    argument: &'a str,
    values: &'a [Value],
}

/// Returns the combinations of a grid, the last argument changing fastest. Their group is the given
/// one, otherwise the argument; if there are several arguments, each value is a group.
pub(super) fn combinations(
    grid: &Map<String, Value>,
    group: Option<String>,
    bytes: &mut VariantBytes,
) -> Result<Vec<Overrides>, Wrong> {
    let axes = axes(grid)?;
    let count = axes.iter().map(|axis| axis.values.len()).product();
    for axis in &axes {
        let times = count / axis.values.len();
        let sizes = axis.values.iter().map(|value| value.to_string().len());
        bytes
            .add(axis.argument.len() + sizes.sum::<usize>(), times)
            .map_err(|reason| (GRID.to_owned(), reason))?;
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
        name: name::of(&values),
        groups: group
            .as_ref()
            .map_or_else(|| groups(&values), |group| vec![group.clone()]),
        values,
        is_of_grid: true,
    };
    Ok((0..count).map(combination).map(overrides).collect())
}

/// Checks the arguments of a grid, and that it does not have too many combinations.
fn axes(grid: &Map<String, Value>) -> Result<Vec<Axis<'_>>, Wrong> {
    if grid.is_empty() {
        let reason = "it is empty, expected an argument with its values";
        return Err((GRID.to_owned(), reason.to_owned()));
    }
    let mut axes = Vec::new();
    let mut count = 1_usize;
    for (argument, values) in grid {
        let place = format!("{GRID}.{}", argument.escape_debug());
        let values = match values {
            Value::Array(values) if values.is_empty() => {
                let reason = "the list is empty, expected at least one value";
                return Err((place, reason.to_owned()));
            }
            Value::Array(values) => values,
            other => {
                let reason = format!("found {}, expected a list of values", show(other));
                return Err((place, reason));
            }
        };
        count = count.saturating_mul(values.len());
        axes.push(Axis { argument, values });
    }
    if count > MAX_VARIANTS {
        let reason = format!("it has {count} combinations, expected at most {MAX_VARIANTS}");
        return Err((GRID.to_owned(), reason));
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
