//! Reads typed fields of a JSON object; errors name the field.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use jobs::refusal::Refusal;
use serde_json::{Map, Value};

use crate::error::in_file;

/// Upper limit of sizes, so that the product of three fits into 64 bits.
const MAX_SIZE: i64 = 1 << 20;
/// Upper limit of layer counts, so that a hostile file cannot ask for a list of tensors that fills
/// the memory.
const MAX_LAYERS: i64 = 1 << 10;

/// One JSON object of a file.
pub(super) struct ConfigFields<'a> {
    path: &'a Path,
    prefix: String,
    map: &'a Map<String, Value>,
}

/// Reads a file that must contain a JSON object.
pub(crate) fn read_object(path: &Path) -> Result<Map<String, Value>, Refusal> {
    let text = fs::read(path).map_err(in_file(path))?;
    serde_json::from_slice(&text).map_err(in_file(path))
}

impl<'a> ConfigFields<'a> {
    /// Creates the view of the outermost object.
    pub(super) fn new(path: &'a Path, map: &'a Map<String, Value>) -> Self {
        Self {
            path,
            prefix: String::new(),
            map,
        }
    }

    /// Returns a nested object; `None` if it is absent or null.
    pub(super) fn object(&self, name: &str) -> Result<Option<ConfigFields<'a>>, Refusal> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(map)) => Ok(Some(ConfigFields {
                path: self.path,
                prefix: format!("{}{name}.", self.prefix),
                map,
            })),
            Some(_) => Err(self.wrong(name, "expected an object")),
        }
    }

    /// As [`ConfigFields::object`], but the object is required.
    pub(super) fn need_object(&self, name: &str) -> Result<ConfigFields<'a>, Refusal> {
        self.object(name)?
            .ok_or_else(|| self.wrong(name, "expected an object"))
    }

    /// Reads a size of at least 1.
    pub(super) fn size(&self, name: &str, default: impl Into<Option<i64>>) -> Result<i64, Refusal> {
        self.integer(name, default.into(), 1..=MAX_SIZE)
    }

    /// Reads a number of layers, at least 1.
    pub(super) fn layers(
        &self,
        name: &str,
        default: impl Into<Option<i64>>,
    ) -> Result<i64, Refusal> {
        self.integer(name, default.into(), 1..=MAX_LAYERS)
    }

    /// Reads a size or an id that may be 0.
    pub(super) fn count(
        &self,
        name: &str,
        default: impl Into<Option<i64>>,
    ) -> Result<i64, Refusal> {
        self.integer(name, default.into(), 0..=MAX_SIZE)
    }

    fn integer(
        &self,
        name: &str,
        default: Option<i64>,
        range: RangeInclusive<i64>,
    ) -> Result<i64, Refusal> {
        match (self.map.get(name), default) {
            (None, Some(default)) => Ok(default),
            (value, _) => value
                .and_then(Value::as_i64)
                .filter(|size| range.contains(size))
                .ok_or_else(|| {
                    self.wrong(
                        name,
                        format!(
                            "expected an integer from {} to {}",
                            range.start(),
                            range.end()
                        ),
                    )
                }),
        }
    }

    /// Reads a list of counts.
    pub(super) fn counts(&self, name: &str) -> Result<Vec<i64>, Refusal> {
        let valid = |value: &Value| {
            value
                .as_i64()
                .filter(|count| (0..=MAX_SIZE).contains(count))
        };
        let list = self.map.get(name).and_then(Value::as_array);
        list.and_then(|list| list.iter().map(valid).collect())
            .ok_or_else(|| {
                self.wrong(
                    name,
                    format!("expected a list of integers from 0 to {MAX_SIZE}"),
                )
            })
    }

    /// Reads a number above 0.
    pub(super) fn positive(&self, name: &str) -> Result<f64, Refusal> {
        let number = self.map.get(name).and_then(Value::as_f64);
        number
            .filter(|number| *number > 0.0)
            .ok_or_else(|| self.wrong(name, "expected a number above 0"))
    }

    /// Reads a boolean.
    pub(super) fn flag(
        &self,
        name: &str,
        default: impl Into<Option<bool>>,
    ) -> Result<bool, Refusal> {
        match (self.map.get(name), default.into()) {
            (None, Some(default)) => Ok(default),
            (value, _) => value
                .and_then(Value::as_bool)
                .ok_or_else(|| self.wrong(name, "expected true or false")),
        }
    }

    /// Reads a string.
    pub(super) fn text(&self, name: &str, default: &str) -> Result<String, Refusal> {
        match self.map.get(name) {
            None => Ok(default.to_owned()),
            Some(value) => value
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| self.wrong(name, "expected a string")),
        }
    }

    /// Returns an error if the field has another value than the only one that is implemented.
    pub(super) fn only(&self, name: &str, wanted: &Value) -> Result<(), Refusal> {
        match self.map.get(name) {
            None => Ok(()),
            Some(found) if found == wanted => Ok(()),
            Some(_) => Err(self.wrong(name, format!("only {wanted} is supported"))),
        }
    }

    /// As [`ConfigFields::only`], but the field is required, because its default is another value.
    pub(super) fn need_only(&self, name: &str, wanted: &Value) -> Result<(), Refusal> {
        if self.map.get(name) == Some(wanted) {
            Ok(())
        } else {
            Err(self.wrong(name, format!("expected {wanted}")))
        }
    }

    /// Returns an error for the field unless `holds` is true.
    pub(super) fn check(
        &self,
        holds: bool,
        name: &str,
        wanted: impl Into<String>,
    ) -> Result<(), Refusal> {
        if holds {
            Ok(())
        } else {
            Err(self.wrong(name, wanted))
        }
    }

    fn wrong(&self, name: &str, wanted: impl Into<String>) -> Refusal {
        let field = format!("{}{name}", self.prefix);
        let found = self
            .map
            .get(name)
            .map_or_else(|| "missing".to_owned(), shown);
        crate::error::field(self.path, &field, found, wanted.into())
    }
}

/// Formats a value for an error message, shortened however long it is in the file.
fn shown(value: &Value) -> String {
    const MOST: usize = 60;
    match value {
        Value::Object(_) => "an object".to_owned(),
        value => {
            let text = value.to_string();
            match text.char_indices().nth(MOST) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        }
    }
}
