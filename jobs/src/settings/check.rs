//! Compares JSON with the schema of a struct: of JSON Schema, what derived schemas use.

use std::cell::RefCell;

use serde_json::{Map, Value};

use crate::refusal::{LIKE_FIELD, Refusal, most_similar};
use crate::settings::kinds;

/// Checks the settings of an object.
pub(super) struct Checker<'a> {
    /// What errors call the object.
    pub(super) place: &'a str,
    /// Where unknown names are noted by their paths, and how similar one must be to a known name to
    /// be refused; otherwise all are refused.
    pub(super) foreign: Option<(f64, &'a RefCell<Vec<String>>)>,
}

impl<'a> Checker<'a> {
    /// Returns a checker that refuses all unknown names.
    pub(super) fn strict(place: &'a str) -> Self {
        let foreign = None;
        Self { place, foreign }
    }

    /// Returns the fields that are given. `path` leads to their object.
    pub(super) fn fields(
        &self,
        path: &str,
        schema: &Value,
        given: &Map<String, Value>,
    ) -> Result<Map<String, Value>, Refusal> {
        let none = Map::new();
        let properties = properties(schema).unwrap_or(&none);
        let others = schema.get("additionalProperties");
        let is_unknown = |name: &&String| others.is_none() && !properties.contains_key(*name);
        for name in given.keys().filter(is_unknown) {
            let known = properties.keys().map(String::as_str);
            match self.foreign {
                Some((like, noted)) if most_similar(name, known, like).is_none() => {
                    noted.borrow_mut().push(below(path, name));
                }
                _ => return Err(self.unknown(path, name, properties)),
            }
        }
        let mut checked = Map::new();
        for (name, value) in given.iter().filter(|(name, _)| !is_unknown(name)) {
            let field = below(path, name);
            let value = match properties.get(name) {
                Some(_) if value.is_null() => continue,
                Some(schema) => self.value(&field, schema, value)?,
                // In a map with names of its own, `null` may be a value.
                None if value.is_null() && others.is_some_and(may_be_null) => Value::Null,
                None => self.value(&field, others.unwrap_or(&Value::Null), value)?,
            };
            checked.insert(name.clone(), value);
        }
        Ok(checked)
    }

    /// Refuses a missing field, which may be there under a misspelt name.
    pub(super) fn complete(
        &self,
        path: &str,
        schema: &Value,
        checked: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        let required = schema.get("required").and_then(Value::as_array);
        let mut required = required.into_iter().flatten().filter_map(Value::as_str);
        let Some(name) = required.find(|name| !checked.contains_key(*name)) else {
            return Ok(());
        };
        let properties = properties(schema).expect("a required field is one of them");
        let is_meant = |found: &&String| {
            let known = properties.keys().map(String::as_str);
            !properties.contains_key(*found) && most_similar(found, known, LIKE_FIELD) == Some(name)
        };
        if let Some(misspelt) = checked.keys().find(is_meant) {
            return Err(self.unknown(path, misspelt, properties));
        }
        let field = &properties[name];
        let mut reason = format!("it is missing, expected {}", wanted(field));
        if let Some(about) = field.get("description").and_then(Value::as_str) {
            reason = format!("{reason}: {}", kinds::one_line(about));
        }
        Err(Refusal::at(self.at(&below(path, name)), reason))
    }

    /// Returns a value in which nested objects are checked, too.
    pub(super) fn value(
        &self,
        path: &str,
        schema: &Value,
        value: &Value,
    ) -> Result<Value, Refusal> {
        let checked = self.form(path, schema, value);
        // Who has said what is wanted wants nothing said about parts of it.
        if schema.get("wanted").is_some() {
            return checked.map_err(|_| self.found(path, schema, value));
        }
        checked
    }

    fn form(&self, path: &str, schema: &Value, value: &Value) -> Result<Value, Refusal> {
        let forms: Vec<&Value> = forms(schema).collect();
        match forms[..] {
            [] => (),
            [form] => return self.value(path, form, value),
            _ => {
                let of_type: Vec<&&Value> =
                    forms.iter().filter(|form| has_type(form, value)).collect();
                if let [form] = of_type[..] {
                    return self.value(path, form, value);
                }
                let found = of_type
                    .into_iter()
                    .find_map(|form| self.value(path, form, value).ok());
                return found.ok_or_else(|| self.found(path, schema, value));
            }
        }
        let is_accepted = has_type(schema, value)
            && words(schema).is_none_or(|words| words.contains(&value))
            && is_within(schema, value)
            && kinds::has_format(schema, value);
        if !is_accepted {
            return Err(self.found(path, schema, value));
        }
        match value {
            Value::Object(fields) if is_closed(schema) => {
                let checked = self.fields(path, schema, fields)?;
                self.complete(path, schema, &checked)?;
                Ok(checked.into())
            }
            Value::Array(items) => self.items(path, schema, items),
            other => Ok(other.clone()),
        }
    }

    fn items(&self, path: &str, schema: &Value, items: &[Value]) -> Result<Value, Refusal> {
        let checked = items.iter().enumerate().map(|(nth, item)| {
            let first = schema.get("prefixItems").and_then(|first| first.get(nth));
            let form = first.or(schema.get("items")).unwrap_or(&Value::Null);
            self.value(&format!("{path}[{nth}]"), form, item)
        });
        checked.collect::<Result<_, _>>().map(Value::Array)
    }

    /// Returns the place of a field: that of `policy_config_dict` is its path in a job.
    fn at(&self, path: &str) -> String {
        match (self.place, path) {
            ("", "") => "top level".to_owned(),
            (place, "") => place.to_owned(),
            ("", path) => path.to_owned(),
            (place, path) if place.contains(['`', ' ']) => format!("{place} field {path}"),
            (place, path) => format!("{place}.{path}"),
        }
    }

    fn found(&self, path: &str, schema: &Value, value: &Value) -> Refusal {
        let wanted = format!("expected {}", wanted(schema));
        Refusal::found(self.at(path), value, wanted)
    }

    fn unknown(&self, path: &str, name: &str, properties: &Map<String, Value>) -> Refusal {
        let used = properties.iter().filter(|(_, schema)| !is_unused(schema));
        let known: Vec<&str> = used.map(|(name, _)| name.as_str()).collect();
        Refusal::unknown(self.at(path), "field", name, &known)
    }
}

fn below(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

pub(super) fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties")?.as_object()
}

/// Returns whether an object has to be looked into.
fn is_closed(schema: &Value) -> bool {
    properties(schema).is_some()
        || schema
            .get("additionalProperties")
            .is_some_and(Value::is_object)
}

pub(super) fn is_unused(schema: &Value) -> bool {
    schema.get("unused").is_some()
}

/// Returns the forms that a value may have, if a schema has several. `null` stands for a value that
/// is not given.
pub(super) fn forms(schema: &Value) -> impl Iterator<Item = &Value> {
    let forms = ["anyOf", "oneOf"].map(|name| schema.get(name).and_then(Value::as_array));
    // The words of an enum are one form.
    let forms = forms
        .into_iter()
        .flatten()
        .filter(|_| words(schema).is_none());
    forms
        .flatten()
        .filter(|form| form.get("type").is_none_or(|name| name != "null"))
}

/// Returns the words of an enum; if its variants are documented, each is a form of its own.
pub(super) fn words(schema: &Value) -> Option<Vec<&Value>> {
    if let Some(word) = schema.get("const") {
        return Some(vec![word]);
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return Some(words.iter().filter(|word| !word.is_null()).collect());
    }
    let forms = schema.get("oneOf").and_then(Value::as_array)?;
    let words: Option<Vec<Vec<&Value>>> = forms.iter().map(words).collect();
    Some(words?.concat())
}

pub(super) fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            names.filter(|name| *name != "null").collect()
        }
        _ => Vec::new(),
    }
}

fn may_be_null(schema: &Value) -> bool {
    let names = schema["type"].as_array();
    names.is_some_and(|names| names.iter().any(|name| name == "null"))
}

fn has_type(schema: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    let types = types(schema);
    types.is_empty() || types.into_iter().any(is)
}

fn is_within(schema: &Value, value: &Value) -> bool {
    let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
    let (least, most, size) = match value {
        Value::Number(number) => ("minimum", "maximum", number.as_f64()),
        Value::String(text) => ("minLength", "maxLength", Some(text.chars().count() as f64)),
        Value::Array(items) => ("minItems", "maxItems", Some(items.len() as f64)),
        _ => return true,
    };
    size.is_some_and(|size| {
        limit(least).is_none_or(|least| size >= least)
            && limit(most).is_none_or(|most| size <= most)
            && limit("exclusiveMinimum").is_none_or(|least| size > least)
    })
}

/// Describes the values that a schema accepts, as a noun.
pub(super) fn wanted(schema: &Value) -> String {
    if let Some(wanted) = schema.get("wanted").and_then(Value::as_str) {
        return wanted.to_owned();
    }
    if let Some(words) = words(schema) {
        let words: Vec<String> = words.into_iter().map(word).collect();
        return match &words[..] {
            [word] => word.clone(),
            words => format!("one of {}", words.join(", ")),
        };
    }
    let forms: Vec<String> = forms(schema).map(wanted).collect();
    if !forms.is_empty() {
        return forms.join(" or ");
    }
    let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
    let range = match (
        limit("minimum"),
        limit("exclusiveMinimum"),
        limit("maximum"),
    ) {
        (Some(1.0), _, None) | (_, Some(0.0), None) => " above 0".to_owned(),
        (Some(least), _, None) => format!(" from {least}"),
        (Some(least), _, Some(most)) => format!(" from {least} to {most}"),
        (None, Some(least), Some(most)) => format!(" above {least} and up to {most}"),
        _ => String::new(),
    };
    match types(schema)[..] {
        ["boolean"] => "true or false".to_owned(),
        ["integer"] => format!("a whole number{range}"),
        ["number"] => format!("a number{range}"),
        ["string"] if schema.get("path").is_some() => "a path".to_owned(),
        ["string"] => "a string".to_owned(),
        ["array"] => match schema.get("items").map(types).as_deref() {
            Some(["string"]) => "a list of strings".to_owned(),
            Some(["integer"]) => "a list of whole numbers".to_owned(),
            _ => "a list".to_owned(),
        },
        ["object"] => "an object".to_owned(),
        _ => "any value".to_owned(),
    }
}

/// Returns a word as people write it: a string without quotes.
pub(super) fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}
