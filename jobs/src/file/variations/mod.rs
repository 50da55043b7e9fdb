//! Reads `variations` of a job, and makes the jobs of its variants.
//!
//! ```text
//! {"light_intensity": 900}                            overrides of the job itself
//! [{"name": "dark", "light_intensity": 100}, …]       variants beside the job, which is the control
//! {"grid": {"light_intensity": [100, 900], …}}        one variant for each combination of values
//! ```
//! A variant is the same job with overrides: its length, policy and environments are those of its
//! control, and so are its seeds.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::file::{MAX_BYTES, check_name};
use crate::job::{Job, Variant};
use crate::refusal::Refusal;
use crate::tree::object;
use crate::{settings, sha256, tree};

/// Name of the field.
const FIELD: &str = "variations";

/// Key of a grid, in `variations` or in an entry of its list.
const GRID: &str = "grid";

/// Most variants of one job. LIBERO-plus has 250 for each of its tasks.
const MAX_VARIANTS: usize = 1000;

/// Longest name of a group in bytes.
pub(super) const MAX_GROUP_BYTES: usize = 200;

/// The overrides of one variant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Overrides {
    name: String,
    groups: Vec<String>,
    values: Map<String, Value>,
    /// Whether it is one of the combinations of a grid.
    is_of_grid: bool,
}

/// The bytes that the variants of a file take as jobs of their own. Without a bound, a small file
/// could fill the memory.
#[derive(Default)]
pub(super) struct VariantBytes(u64);

impl VariantBytes {
    /// Counts bytes that occur so many times.
    fn add(&mut self, bytes: usize, times: usize) -> Result<(), String> {
        let added = (bytes as u64).saturating_mul(times as u64);
        self.0 = self.0.saturating_add(added);
        match self.0 > MAX_BYTES {
            true => Err(format!(
                "with it, the variants of the file have {} bytes as jobs of their own, expected \
                 at most {MAX_BYTES}",
                self.0
            )),
            false => Ok(()),
        }
    }
}

/// A variant, or a grid of variants.
#[derive(Deserialize, JsonSchema)]
struct Written {
    name: Option<String>,
    group: Option<String>,
    #[schemars(extend("wanted" = "an object of lists"))]
    grid: Option<Map<String, Value>>,
    #[serde(flatten)]
    values: Map<String, Value>,
}

/// Reads `variations` of the job at `place`: its own overrides, and its variants.
pub(super) fn read(
    place: &str,
    variations: Option<&Value>,
    bytes: &mut VariantBytes,
) -> Result<(Map<String, Value>, Vec<Overrides>), Refusal> {
    let place = format!("{place} field {FIELD}");
    let mut variants = Vec::new();
    match variations.unwrap_or(&Value::Null) {
        Value::Null => {}
        grid @ Value::Object(map) if map.get(GRID).is_some_and(Value::is_object) => {
            variants = overrides(&place, grid, bytes)?;
        }
        Value::Object(map) => return Ok((map.clone(), variants)),
        Value::Array(entries) if entries.is_empty() => {
            let reason = "the list is empty, expected at least one variant";
            return Err(Refusal::at(place, reason));
        }
        Value::Array(entries) => {
            for (nth, entry) in entries.iter().enumerate() {
                variants.append(&mut overrides(&format!("{place}[{nth}]"), entry, bytes)?);
                if variants.len() > MAX_VARIANTS {
                    let reason =
                        format!("found more than {MAX_VARIANTS} variants, which is the limit");
                    return Err(Refusal::at(place, reason));
                }
            }
        }
        other => return Err(Refusal::found(place, other, "expected an object or a list")),
    }
    // They would be two jobs with one name.
    let mut names = HashSet::new();
    let again = |variant: &&Overrides| !names.insert(variant.name.to_lowercase());
    if let Some(variant) = variants.iter().find(again) {
        let reason = format!(
            "two variants have the name `{}`; names are file names and must differ",
            variant.name.escape_debug()
        );
        return Err(Refusal::at(place, reason));
    }
    Ok((Map::new(), variants))
}

/// Reads one entry of the list: a variant, or a grid of variants.
fn overrides(
    place: &str,
    entry: &Value,
    bytes: &mut VariantBytes,
) -> Result<Vec<Overrides>, Refusal> {
    let given = object(place, entry)?;
    let wrong =
        |field: &str, reason: String| Refusal::at(format_args!("{place} field {field}"), reason);
    let Written {
        name,
        group,
        grid,
        values,
    } = settings::read(place, given)?;
    if group
        .as_ref()
        .is_some_and(|group| !(1..=MAX_GROUP_BYTES).contains(&group.len()))
    {
        let reason = format!("expected a name of 1 to {MAX_GROUP_BYTES} bytes");
        return Err(wrong("group", reason));
    }
    if let Some(grid) = grid {
        let known = [GRID, "group"];
        if let Some(name) = given.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(Refusal::unknown(place, "field", name, &known));
        }
        return combinations(&format!("{place} field {GRID}"), &grid, group, bytes);
    }
    if let Some(name) = &name {
        check_name(name).map_err(|err| wrong("name", err.to_string()))?;
    }
    if values.is_empty() {
        let reason = "it overrides nothing, expected at least one argument of the environment";
        return Err(Refusal::at(place, reason));
    }
    let single = values.keys().next().filter(|_| values.len() == 1).cloned();
    Ok(vec![Overrides {
        name: name.unwrap_or_else(|| name_of(&values)),
        groups: group.or(single).into_iter().collect(),
        values,
        is_of_grid: false,
    }])
}

/// Returns the combinations of a grid, the last argument changing fastest. Their group is the given
/// one, otherwise the argument; if there are several arguments, each value is a group.
fn combinations(
    place: &str,
    grid: &Map<String, Value>,
    group: Option<String>,
    bytes: &mut VariantBytes,
) -> Result<Vec<Overrides>, Refusal> {
    if grid.is_empty() {
        let reason = "it is empty, expected an argument with its values";
        return Err(Refusal::at(place, reason));
    }
    let mut axes = Vec::new();
    for (argument, values) in grid {
        let place = format!("{place}.{}", argument.escape_debug());
        match values {
            Value::Array(values) if values.is_empty() => {
                let reason = "the list is empty, expected at least one value";
                return Err(Refusal::at(place, reason));
            }
            Value::Array(values) => axes.push((argument, values)),
            _ => return Err(Refusal::found(place, values, "expected a list of values")),
        }
    }
    let counts = axes.iter().map(|(_, values)| values.len());
    let count = counts.fold(1, usize::saturating_mul);
    if count > MAX_VARIANTS {
        let reason = format!("it has {count} combinations, expected at most {MAX_VARIANTS}");
        return Err(Refusal::at(place, reason));
    }
    let mut combinations = vec![Map::new()];
    for (argument, values) in axes {
        let sizes = values.iter().map(|value| value.to_string().len());
        let size = argument.len() + sizes.sum::<usize>();
        bytes
            .add(size, count / values.len())
            .map_err(|reason| Refusal::at(place, reason))?;
        let extended = |combination: &Map<String, Value>, value: &Value| {
            let mut combination = combination.clone();
            combination.insert(argument.clone(), value.clone());
            combination
        };
        let each = combinations.iter();
        combinations = each
            .flat_map(|combination| values.iter().map(|value| extended(combination, value)))
            .collect();
    }
    let variant = |values: Map<String, Value>| Overrides {
        name: name_of(&values),
        groups: group
            .as_ref()
            .map_or_else(|| groups(&values), |group| vec![group.clone()]),
        values,
        is_of_grid: true,
    };
    Ok(combinations.into_iter().map(variant).collect())
}

fn groups(values: &Map<String, Value>) -> Vec<String> {
    let level = |(argument, value): (&String, &Value)| {
        let mut level = format!("{argument}={}", tree::plain(value));
        level.truncate(level.floor_char_boundary(MAX_GROUP_BYTES));
        level
    };
    match values.len() {
        1 => values.keys().cloned().collect(),
        _ => values.iter().map(level).collect(),
    }
}

/// Returns a job and those of its variants.
pub(super) fn expanded(
    job: Job,
    variants: Vec<Overrides>,
    bytes: &mut VariantBytes,
) -> Result<Vec<Job>, Refusal> {
    if variants.is_empty() {
        return Ok(vec![job]);
    }
    if job.variant.is_some() {
        let reason = "a variant cannot have variants of its own".to_owned();
        return Err(refusal(&job, reason));
    }
    let text = serde_json::to_string(&job).unwrap_or_default();
    bytes
        .add(text.len(), variants.len())
        .map_err(|reason| refusal(&job, reason))?;
    let mut jobs = vec![job.clone()];
    for overrides in variants {
        let (name, is_of_grid) = (overrides.name.clone(), overrides.is_of_grid);
        let variant = variant(&job, overrides)?;
        if variant.varied().env_args != job.env_args {
            jobs.push(variant);
        } else if !is_of_grid {
            // A grid usually contains the values of the control; that combination is the control.
            let reason = format!("variant `{name}` has the values of the control");
            return Err(refusal(&job, reason));
        }
    }
    if jobs.len() == 1 {
        let reason = "every variant has the values of the control".to_owned();
        return Err(refusal(&job, reason));
    }
    Ok(jobs)
}

fn variant(control: &Job, overrides: Overrides) -> Result<Job, Refusal> {
    let name = format!("{}_{}", control.name, overrides.name);
    check_name(&name).map_err(|err| {
        let name = overrides.name.escape_debug();
        refusal(control, format!("variant `{name}`: {err}"))
    })?;
    Ok(Job {
        name,
        variations: overrides.values,
        variant: Some(Variant {
            of: control.name.clone(),
            name: overrides.name,
            groups: overrides.groups,
        }),
        ..control.clone()
    })
}

fn refusal(job: &Job, reason: String) -> Refusal {
    Refusal::at(format_args!("{} field {FIELD}", job.place()), reason)
}

/// Most bytes of a value in a name.
const MAX_VALUE_BYTES: usize = 32;

/// Most bytes of a name; a job has at most 200 with its own.
const MAX_NAME_BYTES: usize = 100;

/// Digits of a hash that stands for a longer text: 32 bits, for at most a thousand variants.
const HASH_DIGITS: usize = 8;

/// Returns a name such as `light_intensity_100_object_cube`. It follows from the values alone, so
/// that it stays if other variants are added.
fn name_of(values: &Map<String, Value>) -> String {
    let parts = values
        .iter()
        .map(|(argument, value)| format!("{}_{}", plain(argument), text(value)));
    shortened(parts.collect::<Vec<_>>().join("_"), MAX_NAME_BYTES)
}

fn text(value: &Value) -> String {
    let json = value.to_string();
    let text = plain(value.as_str().unwrap_or(&json));
    shortened(text, MAX_VALUE_BYTES)
}

fn shortened(text: String, limit: usize) -> String {
    match text.len() <= limit {
        true => text,
        false => sha256::of(text)[..HASH_DIGITS].to_owned(),
    }
}

/// Keeps the letters and digits of a text, and the punctuation of numbers; commas and the like
/// become hyphens, brackets and quotation marks go.
fn plain(text: &str) -> String {
    let kept = text.chars().filter_map(|letter| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' | '+' => Some(letter),
        '[' | ']' | '{' | '}' | '"' => None,
        _ => Some('-'),
    });
    kept.collect()
}

#[cfg(test)]
mod tests;
