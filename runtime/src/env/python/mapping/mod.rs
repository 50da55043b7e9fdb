//! Validates the mapping of a job as far as that is possible without the environment: names, types
//! and keywords.
//!
//! The child checks whether keys and shapes exist, because it has a real observation
//! (`rrun_mapping.py`).

use jobs::refusal::Refusal;
use jobs::settings::kinds::MapOrFile;
use jobs::settings::read_yaml;
use serde_json::{Map, Value};

use crate::env::python::args::refuse;

/// Reads a mapping: an object, or the path of a YAML or JSON file with one.
///
/// # Errors
/// Returns a [`Refusal`] for the first problem.
pub fn read(given: MapOrFile) -> Result<Map<String, Value>, Refusal> {
    let map = match given {
        MapOrFile::Map(map) => map,
        MapOrFile::File(path) => {
            let read = read_yaml(&path);
            read.map_err(|refusal| refusal.inside("arena_env_args.mapping"))?
        }
    };
    check(&map)?;
    Ok(map)
}

fn check(map: &Map<String, Value>) -> Result<(), Refusal> {
    fields("mapping", map, &["video", "state", "language", "action"])?;
    for (name, entry) in section(map, "video")? {
        camera(&format!("mapping.video.{name}"), entry)?;
    }
    for (name, entry) in section(map, "state")? {
        state(&format!("mapping.state.{name}"), entry)?;
    }
    if let Some(entry) = map.get("language") {
        language("mapping.language", entry)?;
    }
    let action: Map<_, _> = section(map, "action")?
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    self::action("mapping.action", &action)
}

/// Returns the entries of an optional section.
fn section<'a>(
    map: &'a Map<String, Value>,
    name: &str,
) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, Refusal> {
    let entries = match map.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::Object(entries)) => Some(entries),
        Some(other) => {
            return Err(refuse(
                &format!("mapping.{name}"),
                other,
                "expected an object",
            ));
        }
    };
    Ok(entries.into_iter().flatten())
}

fn camera(place: &str, entry: &Value) -> Result<(), Refusal> {
    let Some(map) = entry.as_object() else {
        return text(place, entry, "a key, or an object with `from` or `render`");
    };
    fields(
        place,
        map,
        &["from", "render", "flip", "layout", "convert", "range"],
    )?;
    let field = |name: &str| MappingField::of(map, place, name);
    match (map.get("from"), map.get("render")) {
        (Some(from), None) => text(&format!("{place}.from"), from, "a key")?,
        (None, Some(Value::Bool(true))) => {}
        _ => {
            return Err(refuse(
                place,
                entry,
                "expected either `from: key` or `render: true`",
            ));
        }
    }
    if let MappingField {
        place,
        value: Some(flip),
    } = field("flip")
    {
        let words = flip
            .as_array()
            .map_or(std::slice::from_ref(flip), Vec::as_slice);
        if words
            .iter()
            .any(|word| !matches!(word.as_str(), Some("vertical" | "horizontal")))
        {
            return Err(refuse(
                &place,
                flip,
                "expected `vertical`, `horizontal` or a list of them",
            ));
        }
    }
    conversions(&field("convert"), &field("range"))?;
    one_of(&field("layout"), &["hwc", "chw"])
}

/// Checks how images that are not three channels of bytes are converted.
fn conversions(convert: &MappingField<'_>, range: &MappingField<'_>) -> Result<(), Refusal> {
    let (place, convert) = (&convert.place, convert.value);
    let (range_place, range) = (&range.place, range.value);
    let words = convert.map_or(&[][..], |convert| {
        convert
            .as_array()
            .map_or(std::slice::from_ref(convert), Vec::as_slice)
    });
    if let Some(convert) = convert
        && words
            .iter()
            .any(|word| !matches!(word.as_str(), Some("scale" | "gray" | "drop_alpha")))
    {
        return Err(refuse(
            place,
            convert,
            "expected `scale`, `gray`, `drop_alpha` or a list of them",
        ));
    }
    let Some(range) = range else { return Ok(()) };
    let ends: Vec<_> = range
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
        .collect();
    if ends.len() != 2 || ends[0] >= ends[1] {
        return Err(refuse(
            range_place,
            range,
            "expected two different numbers, the lower one first",
        ));
    }
    match words.iter().any(|word| word == "scale") {
        true => Ok(()),
        false => Err(refuse(
            range_place,
            range,
            "which has no effect without `convert: scale`",
        )),
    }
}

fn state(place: &str, entry: &Value) -> Result<(), Refusal> {
    let Some(map) = entry.as_object() else {
        return text(place, entry, "a key, or an object with `from`");
    };
    fields(
        place,
        map,
        &["from", "convert", "order", "index", "scale", "offset"],
    )?;
    let field = |name: &str| MappingField::of(map, place, name);
    match map.get("from") {
        Some(Value::Array(keys)) if !keys.is_empty() && keys.iter().all(Value::is_string) => {}
        Some(from) => text(&format!("{place}.from"), from, "a key or a list of keys")?,
        None => return Err(refuse(place, entry, "expected `from`")),
    }
    one_of(&field("convert"), &["quat_to_axis_angle", "quat_to_rpy"])?;
    one_of(&field("order"), &["xyzw", "wxyz"])?;
    if let MappingField {
        place,
        value: Some(index),
    } = field("index")
        && !is_index(index)
    {
        return Err(refuse(
            &place,
            index,
            "expected a number, a list of numbers or a slice, for example `0:3`",
        ));
    }
    number(&field("scale"))?;
    number(&field("offset"))
}

fn is_index(index: &Value) -> bool {
    match index {
        Value::Array(items) => !items.is_empty() && items.iter().all(Value::is_i64),
        Value::String(slice) => {
            let parts: Vec<_> = slice.split(':').map(str::trim).collect();
            (2..=3).contains(&parts.len())
                && parts
                    .iter()
                    .all(|part| part.is_empty() || part.parse::<i64>().is_ok())
        }
        other => other.is_i64(),
    }
}

fn language(place: &str, entry: &Value) -> Result<(), Refusal> {
    let Some(map) = entry.as_object() else {
        return text(
            place,
            entry,
            "a string, or an object with `from`, `info` or `attr`",
        );
    };
    fields(place, map, &["from", "info", "attr"])?;
    match map.iter().next() {
        Some((name, value)) if map.len() == 1 => {
            text(&format!("{place}.{name}"), value, "a string")
        }
        _ => Err(refuse(
            place,
            entry,
            "expected one of `from`, `info` and `attr`",
        )),
    }
}

fn action(place: &str, map: &Map<String, Value>) -> Result<(), Refusal> {
    fields(place, map, &["names", "transforms", "low", "high"])?;
    if let Some(names) = map.get("names") {
        let texts = names
            .as_array()
            .filter(|names| !names.is_empty() && names.iter().all(Value::is_string));
        let unique = texts.is_some_and(|names| {
            names
                .iter()
                .enumerate()
                .all(|(at, name)| !names[..at].contains(name))
        });
        if !unique {
            return Err(refuse(
                &format!("{place}.names"),
                names,
                "expected a list of different names",
            ));
        }
    }
    for end in ["low", "high"] {
        if let Some(values) = map.get(end)
            && !values
                .as_array()
                .is_some_and(|values| values.iter().all(Value::is_number))
        {
            return Err(refuse(
                &format!("{place}.{end}"),
                values,
                "expected a list of numbers",
            ));
        }
    }
    match map.get("transforms") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(all)) => all
            .iter()
            .try_for_each(|(name, entry)| transform(&format!("{place}.transforms.{name}"), entry)),
        Some(other) => Err(refuse(
            &format!("{place}.transforms"),
            other,
            "expected an object",
        )),
    }
}

fn transform(place: &str, entry: &Value) -> Result<(), Refusal> {
    let Some(map) = entry.as_object() else {
        return Err(refuse(place, entry, "expected an object"));
    };
    fields(
        place,
        map,
        &["scale", "offset", "invert", "binarize", "clip"],
    )?;
    let field = |name: &str| MappingField::of(map, place, name);
    number(&field("scale"))?;
    number(&field("offset"))?;
    if let MappingField {
        place,
        value: Some(scale),
    } = field("scale")
        && scale.as_f64() == Some(0.0)
    {
        return Err(refuse(&place, scale, "expected a number other than 0"));
    }
    if let MappingField {
        place,
        value: Some(value),
    } = field("invert")
        && !value.is_boolean()
    {
        return Err(refuse(&place, value, "expected true or false"));
    }
    if let MappingField {
        place,
        value: Some(value),
    } = field("binarize")
        && !(value.is_boolean() || value.is_number())
    {
        return Err(refuse(&place, value, "expected true or a threshold"));
    }
    if let MappingField {
        place,
        value: Some(value),
    } = field("clip")
    {
        let ends: Vec<_> = value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_f64)
            .collect();
        if ends.len() != 2 || ends[0] > ends[1] {
            return Err(refuse(
                &place,
                value,
                "expected two numbers, the lower one first",
            ));
        }
    }
    Ok(())
}

/// A field of an entry, which may be absent.
struct MappingField<'a> {
    /// The path of the field, for messages: `mapping.video.view.flip`.
    place: String,
    value: Option<&'a Value>,
}

impl<'a> MappingField<'a> {
    fn of(map: &'a Map<String, Value>, place: &str, name: &str) -> Self {
        Self {
            place: format!("{place}.{name}"),
            value: map.get(name),
        }
    }
}

fn fields(place: &str, map: &Map<String, Value>, known: &[&str]) -> Result<(), Refusal> {
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            let place = format_args!("arena_env_args.{place}");
            Err(Refusal::unknown(place, "field", key, known))
        }
        None => Ok(()),
    }
}

fn text(place: &str, value: &Value, wanted: &str) -> Result<(), Refusal> {
    if value.is_string() {
        Ok(())
    } else {
        Err(refuse(place, value, &format!("expected {wanted}")))
    }
}

fn number(field: &MappingField<'_>) -> Result<(), Refusal> {
    match field.value {
        Some(value) if !value.is_number() => Err(refuse(&field.place, value, "expected a number")),
        _ => Ok(()),
    }
}

fn one_of(field: &MappingField<'_>, words: &[&str]) -> Result<(), Refusal> {
    match field.value {
        Some(value) if !value.as_str().is_some_and(|word| words.contains(&word)) => Err(refuse(
            &field.place,
            value,
            &format!("expected one of {}", words.join(", ")),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
