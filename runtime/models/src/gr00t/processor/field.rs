//! Reads typed values from a JSON file; every error names file and field.

use std::fs;
use std::path::{Path, PathBuf};

use jobs::refusal::Refusal;
use serde_json::Value;

use crate::error::{in_file, not_json};

/// Maximum length of a value that an error repeats, in characters.
const SHOWN: usize = 60;

/// A parsed JSON file.
#[derive(Clone, Debug)]
pub(crate) struct Json {
    path: PathBuf,
    value: Value,
}

impl Json {
    pub(crate) fn read(path: &Path) -> Result<Self, Refusal> {
        let bytes = fs::read(path).map_err(in_file(path))?;
        Self::parse(path, &bytes)
    }

    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Refusal> {
        let value = serde_json::from_slice(bytes).map_err(not_json(path))?;
        Ok(Self {
            path: path.to_owned(),
            value,
        })
    }

    pub(crate) fn root(&self) -> Field<'_> {
        Field {
            path: &self.path,
            place: String::new(),
            value: Some(&self.value),
        }
    }
}

/// A place in a JSON file, with or without a value.
#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    path: &'a Path,
    place: String,
    value: Option<&'a Value>,
}

impl<'a> Field<'a> {
    /// Returns the member `key` of this value, which must be an object.
    pub(crate) fn get(&self, key: &str) -> Result<Self, Refusal> {
        match self.value {
            Some(Value::Object(members)) => Ok(self.child(key, members.get(key))),
            _ => Err(self.refuse("expected an object")),
        }
    }

    /// Returns the members of this object, in the file's order.
    pub(crate) fn members(&self) -> Result<Vec<(&'a str, Self)>, Refusal> {
        let Some(Value::Object(members)) = self.value else {
            return Err(self.refuse("expected an object"));
        };
        Ok(members
            .iter()
            .map(|(key, value)| (key.as_str(), self.child(key, Some(value))))
            .collect())
    }

    /// Returns the items of this list.
    pub(crate) fn items(&self) -> Result<Vec<Self>, Refusal> {
        let Some(Value::Array(items)) = self.value else {
            return Err(self.refuse("expected a list"));
        };
        let item = |(index, value)| Self {
            path: self.path,
            place: format!("{}[{index}]", self.place),
            value,
        };
        Ok(items.iter().map(Some).enumerate().map(item).collect())
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.value.is_none()
    }

    /// Returns whether the value is null.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Some(Value::Null))
    }

    /// Returns this field, unless it is missing or null.
    pub(crate) fn given(self) -> Option<Self> {
        if self.is_missing() || self.is_null() {
            None
        } else {
            Some(self)
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self.value, Some(Value::Array(_)))
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self.value, Some(Value::String(_)))
    }

    pub(crate) fn bool(&self) -> Result<bool, Refusal> {
        self.value
            .and_then(Value::as_bool)
            .ok_or_else(|| self.refuse("expected true or false"))
    }

    pub(crate) fn text(&self) -> Result<&'a str, Refusal> {
        self.value
            .and_then(Value::as_str)
            .ok_or_else(|| self.refuse("expected a string"))
    }

    pub(crate) fn texts(&self) -> Result<Vec<String>, Refusal> {
        self.items()?
            .iter()
            .map(|item| item.text().map(str::to_owned))
            .collect()
    }

    pub(crate) fn integer(&self) -> Result<i64, Refusal> {
        self.value
            .and_then(Value::as_i64)
            .ok_or_else(|| self.refuse("expected an integer"))
    }

    /// Reads an integer from `low` to `high`.
    pub(crate) fn size(&self, low: usize, high: usize) -> Result<usize, Refusal> {
        let number = self
            .value
            .and_then(Value::as_u64)
            .and_then(|number| usize::try_from(number).ok());
        number
            .filter(|number| (low..=high).contains(number))
            .ok_or_else(|| self.refuse(&format!("expected a whole number from {low} to {high}")))
    }

    pub(crate) fn number(&self) -> Result<f64, Refusal> {
        let number = self
            .value
            .and_then(Value::as_f64)
            .filter(|number| number.is_finite());
        number.ok_or_else(|| self.refuse("expected a number"))
    }

    pub(crate) fn numbers(&self) -> Result<Vec<f64>, Refusal> {
        self.items()?.iter().map(Self::number).collect()
    }

    pub(crate) fn refuse(&self, wanted: &str) -> Refusal {
        let found = match self.value {
            None => "missing".to_owned(),
            Some(value) => shorten(&value.to_string()),
        };
        let field = if self.place.is_empty() {
            "the whole file"
        } else {
            &self.place
        };
        crate::error::field(self.path, field, found, wanted)
    }

    fn child(&self, key: &str, value: Option<&'a Value>) -> Self {
        let place = if self.place.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.place)
        };
        Self {
            path: self.path,
            place,
            value,
        }
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_file_field_value_and_wish() {
        let json = Json::parse(Path::new("p.json"), br#"{"a": {"b": [1, "x"]}}"#).unwrap();
        let list = json.root().get("a").unwrap().get("b").unwrap();
        assert_eq!(
            list.numbers().unwrap_err().to_string(),
            "`p.json`: `a.b[1]` is \"x\", expected a number"
        );
        let missing = json.root().get("c").unwrap();
        assert_eq!(
            missing.bool().unwrap_err().to_string(),
            "`p.json`: `c` is missing, expected true or false"
        );
    }

    #[test]
    fn a_long_value_is_cut() {
        let json = Json::parse(
            Path::new("p.json"),
            format!("[\"{}\"]", "ä".repeat(500)).as_bytes(),
        )
        .unwrap();
        assert!(json.root().bool().unwrap_err().to_string().chars().count() < 120);
    }
}
