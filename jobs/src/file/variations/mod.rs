//! Reads `variations` of a job, and makes the jobs of its variants.
//!
//! ```text
//! {"light_intensity": 900}                            overrides of the job itself
//! [{"name": "dark", "light_intensity": 100}, …]       variants beside the job, which is the control
//! {"grid": {"light_intensity": [100, 900], …}}        one variant for each combination of values
//! ```
//! A variant is the same job with overrides: its length, policy and environments are those of its
//! control, and so are its seeds.

use serde_json::{Map, Value};

use crate::fields::{FieldError, FileFields};
use crate::file::{MAX_BYTES, check_name};
use crate::job::{Job, Variant};
use crate::refusal::Refusal;
use crate::variation;

mod grid;
mod name;

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

/// What a job varies.
pub(super) enum Variations {
    /// Overrides of the job itself.
    OfJob(Map<String, Value>),
    /// Variants beside the job, at least one.
    Beside(Vec<Overrides>),
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

/// Takes `variations` out of the fields of a job.
pub(super) fn take(
    fields: &mut FileFields,
    bytes: &mut VariantBytes,
) -> Result<Variations, FieldError> {
    let place = fields.place(FIELD);
    let entries = match fields.take(FIELD) {
        None | Some(Value::Null) => return Ok(Variations::OfJob(Map::new())),
        Some(Value::Array(entries)) => entries.as_slice(),
        Some(grid @ Value::Object(map)) if map.get(GRID).is_some_and(Value::is_object) => {
            let variants = overrides(FileFields::new(&place, grid)?, bytes)?;
            refuse_duplicates(fields, &variants)?;
            return Ok(Variations::Beside(variants));
        }
        Some(Value::Object(map)) => return Ok(Variations::OfJob(map.clone())),
        other => return Err(fields.wrong(FIELD, other, "expected an object or a list")),
    };
    if entries.is_empty() {
        let reason = "the list is empty, expected at least one variant";
        return Err(fields.refuse(FIELD, reason));
    }
    let mut variants = Vec::new();
    for (nth, entry) in entries.iter().enumerate() {
        let entry = FileFields::new(&format!("{place}[{nth}]"), entry)?;
        variants.append(&mut overrides(entry, bytes)?);
        if variants.len() > MAX_VARIANTS {
            let reason = format!("found more than {MAX_VARIANTS} variants, which is the limit");
            return Err(fields.refuse(FIELD, &reason));
        }
    }
    refuse_duplicates(fields, &variants)?;
    Ok(Variations::Beside(variants))
}

/// Reads one entry of the list: a variant, or a grid of variants.
fn overrides(
    mut entry: FileFields,
    bytes: &mut VariantBytes,
) -> Result<Vec<Overrides>, FieldError> {
    let group = group(&mut entry)?;
    if entry.has(GRID) {
        return grid::combinations(entry, group, bytes);
    }
    let name = entry.optional_string("name")?;
    if let Some(name) = &name {
        check_name(name).map_err(|err| entry.refuse("name", &err.to_string()))?;
    }
    if entry.left().next().is_none() {
        let reason = "it overrides nothing, expected at least one argument of the environment";
        return Err(entry.refuse_all(reason));
    }
    let values = entry.rest();
    let single = (values.len() == 1).then(|| values.keys().next().cloned());
    Ok(vec![Overrides {
        name: name.unwrap_or_else(|| name::of(&values)),
        groups: group.or(single.flatten()).into_iter().collect(),
        values,
        is_of_grid: false,
    }])
}

fn is_group(name: &str) -> bool {
    (1..=MAX_GROUP_BYTES).contains(&name.len())
}

fn group(entry: &mut FileFields) -> Result<Option<String>, FieldError> {
    let group = entry.optional_string("group")?;
    match &group {
        Some(group) if !is_group(group) => {
            let reason = format!("expected a name of 1 to {MAX_GROUP_BYTES} bytes");
            Err(entry.refuse("group", &reason))
        }
        _ => Ok(group),
    }
}

/// Refuses two variants of one job with the same name, which would be two jobs with one name.
fn refuse_duplicates(fields: &FileFields, variants: &[Overrides]) -> Result<(), FieldError> {
    let mut names = std::collections::HashSet::new();
    for variant in variants {
        if !names.insert(variant.name.to_lowercase()) {
            let reason = format!(
                "two variants have the name `{}`; names are file names and must differ",
                variant.name.escape_debug()
            );
            return Err(fields.refuse(FIELD, &reason));
        }
    }
    Ok(())
}

/// Returns a job and those of its variants.
pub(super) fn expanded(
    mut job: Job,
    variations: Variations,
    bytes: &mut VariantBytes,
) -> Result<Vec<Job>, Refusal> {
    let variants = match variations {
        Variations::OfJob(values) => {
            job.variations = values;
            return Ok(vec![job]);
        }
        Variations::Beside(_) if job.variant.is_some() => {
            let reason = "a variant cannot have variants of its own".to_owned();
            return Err(refusal(&job, reason));
        }
        Variations::Beside(variants) => variants,
    };
    let text = serde_json::to_string(&job).unwrap_or_default();
    bytes
        .add(text.len(), variants.len())
        .map_err(|reason| refusal(&job, reason))?;
    let mut jobs = vec![job.clone()];
    for overrides in variants {
        let (name, is_of_grid) = (overrides.name.clone(), overrides.is_of_grid);
        let variant = variant(&job, overrides)?;
        if variation::applied(&variant).env_args != job.env_args {
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
    let Overrides {
        name,
        groups,
        values,
        ..
    } = overrides;
    let job_name = format!("{}_{name}", control.name);
    check_name(&job_name)
        .map_err(|err| refusal(control, format!("variant `{}`: {err}", name.escape_debug())))?;
    Ok(Job {
        name: job_name,
        variations: values,
        variant: Some(Variant {
            of: control.name.clone(),
            name,
            groups,
        }),
        ..control.clone()
    })
}

fn refusal(job: &Job, reason: String) -> Refusal {
    Refusal::at(format_args!("{} field {FIELD}", job.place()), reason)
}

#[cfg(test)]
mod tests;
