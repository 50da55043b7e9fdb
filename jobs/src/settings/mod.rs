//! Settings: what users write in jobs files, policies' files and descriptions, as typed structs.
//!
//! A setting is a field of a struct that derives `Deserialize` and `JsonSchema`. The field is its
//! only declaration, from which everybody reads:
//!
//! ```text
//! /// number of actions to execute [default: all]     meaning and default in words: [`rows`]
//! pub action_chunk_length: Option<Count>,            name and values: [`read`]
//! #[serde(default = "number::<300, Seconds>")]       default as a value
//! #[schemars(range(min = 0.0, max = 60.0))]          bounds
//! #[schemars(extend("place" = true))]                no result depends on it
//! #[schemars(extend("path" = "file"))]               what the path leads to, see [`PathTo`]
//! #[schemars(extend("wanted" = "a host name"))]      the values in words, if the type's are not good
//! #[serde(flatten)] pub server: Server,              settings shared with other structs
//! ```
//! A struct accepts no names but those of its fields, unless it flattens a map of the rest. `null` is
//! the same as a setting that is not given.

mod check;
pub mod kinds;

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::files;
use crate::refusal::Refusal;
use crate::settings::check::{Checker, forms, is_unused, properties, types, wanted, word, words};

/// Maximum size of a file of settings in bytes; Arena's have 2 KB.
const MAX_FILE: u64 = 1 << 20;

/// Declared settings.
pub trait Settings: DeserializeOwned + JsonSchema + 'static {}

impl<T: DeserializeOwned + JsonSchema + 'static> Settings for T {}

/// Reads settings. `place` names their object, for example `policy_config_dict`.
///
/// # Errors
/// Refuses an unknown name, a wrong value, and a missing setting.
pub fn read<T: Settings>(place: &str, given: &Map<String, Value>) -> Result<T, Refusal> {
    finish(place, given_of::<T>(place, given)?)
}

/// Reads settings that stand among those of other programs: returns the dotted names that are not
/// known, too. One that is at least so similar to a known one is taken for a misspelt one.
///
/// # Errors
/// Refuses a misspelt name, a wrong value, and a missing setting.
pub fn read_among<T: Settings>(
    place: &str,
    given: &Map<String, Value>,
    like: f64,
) -> Result<(T, Vec<String>), Refusal> {
    let noted = RefCell::default();
    let foreign = Some((like, &noted));
    let checked = Checker { place, foreign }.fields("", &schema::<T>().value, given)?;
    Ok((finish(place, checked)?, noted.into_inner()))
}

/// Reads settings whose object stands over a YAML file with more of them. A path in the file is
/// resolved against the working directory first, then against the file's directory.
///
/// # Errors
/// Fails like [`read`], and for a file that cannot be read. The error for a field of the file names
/// the file.
pub fn read_over<T: Settings>(
    place: &str,
    given: &Map<String, Value>,
    file: &Path,
) -> Result<T, Refusal> {
    let mut checked = given_of::<T>(place, given)?;
    for (name, value) in given_in::<T>(file, given)? {
        checked.entry(name).or_insert(value);
    }
    finish(place, checked)
}

/// Returns the settings that an object gives, whether they are all or not.
///
/// # Errors
/// Refuses an unknown name and a wrong value.
pub fn given_of<T: Settings>(
    place: &str,
    given: &Map<String, Value>,
) -> Result<Map<String, Value>, Refusal> {
    Checker::strict(place).fields("", &schema::<T>().value, given)
}

/// Returns the settings that a file gives in addition to `above`.
///
/// # Errors
/// Refuses a file that cannot be read, and a wrong setting in it.
pub fn given_in<T: Settings>(
    file: &Path,
    above: &Map<String, Value>,
) -> Result<Map<String, Value>, Refusal> {
    let mut below = read_yaml(file)?;
    below.retain(|name, _| above.get(name).is_none_or(Value::is_null));
    let mut checked = given_of::<T>(&format!("`{}`", file.display()), &below)?;
    for row in rows::<T>().iter().filter(|row| row.path.is_some()) {
        if let Some(Value::String(path)) = checked.get_mut(&row.name) {
            *path = beside(file, path);
        }
    }
    Ok(checked)
}

fn finish<T: Settings>(place: &str, checked: Map<String, Value>) -> Result<T, Refusal> {
    Checker::strict(place).complete("", &schema::<T>().value, &checked)?;
    // The checker has accepted it, so this fails only for a type that says less than it wants.
    serde_json::from_value(Value::Object(checked)).map_err(|err| Refusal::at(place, err))
}

/// Reads a YAML file that contains a map.
///
/// # Errors
/// Refuses a file that cannot be read or is no map.
pub fn read_yaml(file: &Path) -> Result<Map<String, Value>, Refusal> {
    let text = files::read_text(file, MAX_FILE).map_err(|err| Refusal::in_file(file, err))?;
    // Only true and false are booleans, because `y` is the name of a joint or an axis.
    let options = serde_saphyr::options! { strict_booleans: true };
    match serde_saphyr::from_str_with_options::<Value>(&text, options) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Refusal::in_file(file, "expected a map of fields")),
        Err(err) => Err(Refusal::in_file(file, err)),
    }
}

fn beside(file: &Path, path: &str) -> String {
    let beside = file.with_file_name(path);
    if !Path::new(path).exists() && beside.exists() {
        return beside.to_string_lossy().into_owned();
    }
    path.to_owned()
}

/// The schema of a type, with those of its parts in it, and its settings.
struct Declared {
    value: Value,
    rows: Vec<SettingRow>,
}

fn schema<T: Settings>() -> &'static Declared {
    static KNOWN: Mutex<BTreeMap<TypeId, &'static Declared>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(TypeId::of::<T>()).or_insert_with(|| {
        let settings = SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<T>();
        let value = schema.to_value();
        let rows = rows_of(&value);
        // There are as many as types that derive a schema.
        Box::leak(Box::new(Declared { value, rows }))
    })
}

/// Returns the settings of a struct in the order of its fields.
pub fn rows<T: Settings>() -> &'static [SettingRow] {
    &schema::<T>().rows
}

/// Returns the names of the settings of a struct.
pub fn names<T: Settings>() -> Vec<&'static str> {
    rows::<T>().iter().map(|row| row.name.as_str()).collect()
}

/// A setting, as its declaration has it.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingRow {
    /// Its name.
    pub name: String,
    /// The values that it may have, as a noun.
    pub wanted: String,
    /// The default in words; empty if there is none.
    pub default: String,
    /// What it means, in one line.
    pub about: String,
    /// Whether it must be given.
    pub is_required: bool,
    /// Whether it says only where something is or how long it is waited for, so that results do not
    /// depend on it.
    pub is_of_place: bool,
    /// Whether it is accepted and has no effect.
    pub is_unused: bool,
    /// What its path leads to, if it is one.
    pub path: Option<PathTo>,
    schema: Value,
}

/// What a path leads to, as far as the launcher looks before ranks start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathTo {
    /// `file`: it must exist.
    File,
    /// `package`: a `.pt2` package that must exist and that this machine can run.
    Package,
    /// `checkpoint`: its folder, or the name of a downloaded model.
    Checkpoint,
    /// `interpreter`: a name in `PATH`, a path, or the folder of a venv.
    Interpreter,
    /// `anything`: something that may not exist yet, because an earlier job may make it, or that
    /// only the rank looks for.
    Anything,
}

/// Returns the settings of a schema in the order of its fields.
fn rows_of(schema: &Value) -> Vec<SettingRow> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|it| it == name));
    let properties = properties(schema).into_iter().flatten();
    properties
        .map(|(name, schema)| row(name, schema, is_required(name)))
        .collect()
}

fn row(name: &str, schema: &Value, is_required: bool) -> SettingRow {
    let text = |key: &str| schema[key].as_str().unwrap_or_default();
    let about = kinds::one_line(text("description"));
    let (about, in_words) = match about.split_once(" [default: ") {
        Some((about, default)) => (about.to_owned(), Some(default.trim_end_matches(']'))),
        None => (about.clone(), None),
    };
    let value = schema.get("default").filter(|value| !value.is_null());
    SettingRow {
        name: name.to_owned(),
        wanted: wanted(schema),
        default: in_words
            .map(str::to_owned)
            .or_else(|| value.map(word))
            .unwrap_or_default(),
        about,
        is_required,
        is_of_place: schema["place"] == true,
        is_unused: is_unused(schema),
        path: PathTo::deserialize(&schema["path"]).ok(),
        schema: schema.clone(),
    }
}

impl SettingRow {
    /// Returns the type of the value in JSON, of several the last; `None` if any value is accepted.
    pub fn json_type(&self) -> Option<&str> {
        let mut schema = &self.schema;
        while let Some(form) = forms(schema).last() {
            schema = form;
        }
        match (words(schema), types(schema).last().copied()) {
            (Some(_), _) => Some("string"),
            (None, Some("integer")) => Some("number"),
            (None, other) => other,
        }
    }

    /// Returns the words of which the value is one.
    pub fn choices(&self) -> Option<Vec<&str>> {
        let mut all = forms(&self.schema).chain([&self.schema]);
        let words = all.find_map(words)?;
        Some(words.into_iter().filter_map(Value::as_str).collect())
    }

    /// Returns the smallest and the largest number that the setting may have.
    pub fn bounds(&self) -> Option<(f64, f64)> {
        let limit = |name: &str| self.schema.get(name).and_then(Value::as_f64);
        limit("minimum").zip(limit("maximum"))
    }

    /// Returns the same setting with this default.
    pub(crate) fn with_default(&self, default: impl ToString) -> Self {
        let default = default.to_string();
        Self {
            default,
            ..self.clone()
        }
    }

    /// Returns the same setting, whose value is one of these words.
    pub(crate) fn one_of(&self, words: &[&str]) -> Self {
        let schema = serde_json::json!({"type": "string", "enum": words});
        Self {
            wanted: wanted(&schema),
            schema,
            ..self.clone()
        }
    }

    /// Returns whether the setting may have a value.
    pub fn accepts(&self, value: &Value) -> bool {
        Checker::strict("").value("", &self.schema, value).is_ok()
    }

    /// Returns whether the value is the name of a Python callable.
    pub fn is_callable(&self) -> bool {
        forms(&self.schema)
            .chain([&self.schema])
            .any(kinds::is_callable)
    }
}

#[cfg(test)]
mod tests;
