//! The JSON files of a checkpoint, read into types. A refusal names the file, the field, the value
//! found and what is expected.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use jobs::refusal::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::error::{field, in_file, not_json};

/// Maximum length of a value that a refusal repeats, in characters.
const SHOWN: usize = 60;

/// A field with one value, because nothing else is implemented: a JSON pointer, and the value as
/// JSON. A field of an object that is missing is not checked.
pub(crate) enum Fixed {
    /// It must be in the file, because a missing one means another value.
    Needed(&'static str, &'static str),
    /// It has this value if it is missing.
    IfGiven(&'static str, &'static str),
    /// It is written for the reference and not read.
    Written(&'static str, &'static str),
}

/// A JSON file.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    path: PathBuf,
    pub(crate) value: Value,
}

impl Document {
    pub(crate) fn read(path: &Path) -> Result<Self, Refusal> {
        Self::parse(path, &fs::read(path).map_err(in_file(path))?)
    }

    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Refusal> {
        let (path, value) = (path.to_owned(), serde_json::from_slice(bytes));
        let value = value.map_err(not_json(&path))?;
        Ok(Self { path, value })
    }

    /// Reads what is below these names. A missing value is read as null.
    pub(crate) fn get<'a, T: Deserialize<'a>>(&'a self, names: &[&str]) -> Result<T, Refusal> {
        for end in 0..names.len() {
            if !self.find(&names[..end]).is_some_and(Value::is_object) {
                return Err(self.refuse(&names[..end], "expected an object"));
            }
        }
        let value = self.find(names).unwrap_or(&Value::Null);
        serde_path_to_error::deserialize(value).map_err(|err| self.misread(names, &err))
    }

    /// Refuses what is below these names; `wanted` is a clause.
    pub(crate) fn refuse(&self, names: &[&str], wanted: impl Display) -> Refusal {
        self.wrong(&names.join("."), self.find(names), wanted)
    }

    /// Refuses what is below these names unless it `holds`; `wanted` is a clause.
    pub(crate) fn need(
        &self,
        holds: bool,
        names: &[&str],
        wanted: impl Display,
    ) -> Result<(), Refusal> {
        match holds {
            true => Ok(()),
            false => Err(self.refuse(names, wanted)),
        }
    }

    /// Checks the fields that have one value.
    pub(crate) fn check(&self, fixed: &[Fixed]) -> Result<(), Refusal> {
        for row in fixed {
            let (Fixed::Needed(pointer, value) | Fixed::IfGiven(pointer, value)) = row else {
                continue;
            };
            let (part, name) = pointer.rsplit_once('/').unwrap_or_default();
            let Some(Value::Object(part)) = self.value.pointer(part) else {
                continue;
            };
            let found = part.get(name);
            let may_miss = matches!(row, Fixed::IfGiven(..));
            if !found.map_or(may_miss, |found| *found == literal(value)) {
                let place = pointer[1..].replace('/', ".");
                return Err(self.wrong(&place, found, format_args!("only {value} is supported")));
            }
        }
        Ok(())
    }

    fn find(&self, names: &[&str]) -> Option<&Value> {
        let mut names = names.iter();
        names.try_fold(&self.value, |value, name| value.get(*name))
    }

    /// Says in our words why serde refuses what is below these names.
    fn misread(
        &self,
        names: &[&str],
        err: &serde_path_to_error::Error<serde_json::Error>,
    ) -> Refusal {
        let (mut place, mut found) = (names.join("."), self.find(names));
        for segment in err.path() {
            match segment {
                Segment::Seq { index } => {
                    place += &format!("[{index}]");
                    found = found.and_then(|value| value.get(index));
                }
                Segment::Map { key } => {
                    place = joined(&place, key);
                    found = found.and_then(|value| value.get(key));
                }
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        let reason = err.inner().to_string();
        if let Some(name) = reason.strip_prefix("missing field `") {
            let place = joined(&place, name.trim_end_matches('`'));
            return self.wrong(&place, None, "it is required");
        }
        let wanted = match reason
            .rsplit_once(", expected ")
            .map_or(&*reason, |(_, wanted)| wanted)
        {
            "i64" => "an integer",
            "usize" => "a whole number of at least 0",
            "u16" => "a whole number from 0 to 65535",
            "f64" => "a number",
            "a boolean" => "true or false",
            "a sequence" => "a list",
            wanted if wanted == "a map" || wanted.starts_with("struct ") => "an object",
            wanted => wanted,
        }
        .replace("an array", "a list");
        self.wrong(&place, found, format_args!("expected {wanted}"))
    }

    fn wrong(&self, place: &str, found: Option<&Value>, wanted: impl Display) -> Refusal {
        let mut shown = found.map_or_else(|| "missing".to_owned(), Value::to_string);
        if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
            shown.truncate(end);
            shown.push('…');
        }
        let place = if place.is_empty() {
            "the whole file"
        } else {
            place
        };
        field(&self.path, place, shown, wanted)
    }
}

/// Returns the JSON of a configuration, with its fixed fields.
pub(crate) fn written(config: &impl Serialize, fixed: &[Fixed]) -> Value {
    let mut json = serde_json::to_value(config).expect("a configuration is an object of JSON");
    for row in fixed {
        let (Fixed::Needed(pointer, value)
        | Fixed::IfGiven(pointer, value)
        | Fixed::Written(pointer, value)) = row;
        let (part, name) = pointer.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(part)) = json.pointer_mut(part) {
            part.entry(name).or_insert_with(|| literal(value));
        }
    }
    json
}

fn literal(json: &str) -> Value {
    serde_json::from_str(json).expect("the value of a fixed field is JSON")
}

fn joined(place: &str, name: &str) -> String {
    match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Part {
        _b: Vec<f64>,
    }

    fn document(text: &str) -> Document {
        Document::parse(Path::new("p.json"), text.as_bytes()).unwrap()
    }

    #[test]
    fn a_refusal_names_file_field_value_and_wish() {
        let json = document(r#"{"a": {"_b": [1, "x"]}}"#);
        let refusal = |names: &[&str]| json.get::<Part>(names).unwrap_err().to_string();
        assert_eq!(
            refusal(&["a"]),
            "`p.json`: `a._b[1]` is \"x\", expected a number"
        );
        assert_eq!(
            refusal(&["c"]),
            "`p.json`: `c` is missing, expected an object"
        );
        assert_eq!(refusal(&[]), "`p.json`: `_b` is missing, it is required");
        assert_eq!(
            refusal(&["a", "_b", "c"]),
            "`p.json`: `a._b` is [1,\"x\"], expected an object"
        );
    }

    #[test]
    fn a_long_value_is_cut() {
        let json = document(&format!("[\"{}\"]", "ä".repeat(500)));
        let refusal = json.get::<bool>(&[]).unwrap_err().to_string();
        assert!(
            refusal.starts_with("`p.json`: `the whole file` is [\"ää")
                && refusal.chars().count() < 140
        );
    }

    #[test]
    fn what_is_fixed_is_written_and_checked_where_its_part_is_given() {
        const FIXED: [Fixed; 3] = [
            Fixed::Needed("/a/kind", "null"),
            Fixed::IfGiven("/a/on", "true"),
            Fixed::Written("/more", "1"),
        ];
        let json = written(&serde_json::json!({"a": {}}), &FIXED);
        assert_eq!(
            json.to_string(),
            r#"{"a":{"kind":null,"on":true},"more":1}"#
        );
        let check = |text: &str| document(text).check(&FIXED);
        assert!(check("{}").is_ok() && check(r#"{"a": {"kind": null}}"#).is_ok());
        let told = check(r#"{"a": {}}"#).unwrap_err().to_string();
        assert_eq!(
            told,
            "`p.json`: `a.kind` is missing, only null is supported"
        );
        let told = check(r#"{"a": {"kind": null, "on": 1}}"#).unwrap_err();
        assert_eq!(
            told.to_string(),
            "`p.json`: `a.on` is 1, only true is supported"
        );
    }
}
