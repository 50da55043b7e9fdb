//! The settings of a struct as rows, for everybody who says something about all of them: `rrun list`,
//! the documentation, the identity of a job, the files that must exist.

use serde::Deserialize;
use serde_json::Value;

use crate::settings::check::{Checker, forms, is_unused, properties, types, wanted, word, words};
use crate::settings::kinds;

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
pub(super) fn of(schema: &Value) -> Vec<SettingRow> {
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
        let (place, foreign) = ("", None);
        let checker = Checker { place, foreign };
        checker.value("", &self.schema, value).is_ok()
    }

    /// Returns whether the value is the name of a Python callable.
    pub fn is_callable(&self) -> bool {
        forms(&self.schema)
            .chain([&self.schema])
            .any(kinds::is_callable)
    }
}
