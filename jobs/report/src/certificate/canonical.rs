//! Canonical JSON: one text for one value, so that its hash does not depend on who wrote it.
//!
//! The text is that of RFC 8785 (JSON Canonicalization Scheme): members sorted by their names as
//! UTF-16, no blanks, numbers as ECMAScript prints doubles. RFC 8785 takes I-JSON (RFC 7493) only. So
//! a member that occurs twice is refused, and so is an integer that a double cannot hold.

use std::collections::HashSet;
use std::fmt;

use jobs::refusal::Refusal;
use jobs::sha256;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, Serialize};
use serde_json::{Map, Number, Value};

/// The largest integer of I-JSON: from here on, neighbouring integers are one double.
const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Parses JSON in which no object has two members of the same name.
///
/// # Errors
/// Returns the first error of form.
pub fn parse(text: &[u8]) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = UniqueMembers.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Returns the canonical text of a value.
///
/// # Errors
/// Refuses an integer that I-JSON does not have.
pub fn text(value: &Value) -> Result<Vec<u8>, Refusal> {
    check_integers("", value)?;
    serde_json_canonicalizer::to_vec(value).map_err(Refusal::new)
}

/// Returns the SHA-256 of the canonical text of a value, as hex digits.
///
/// # Errors
/// As [`text`].
pub fn sha256(value: &impl Serialize) -> Result<String, Refusal> {
    let value = serde_json::to_value(value).map_err(Refusal::new)?;
    Ok(sha256::of(text(&value)?))
}

fn check_integers(place: &str, value: &Value) -> Result<(), Refusal> {
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(nth, item)| check_integers(&format!("{place}/{nth}"), item)),
        Value::Object(members) => members
            .iter()
            .try_for_each(|(name, item)| check_integers(&format!("{place}/{name}"), item)),
        Value::Number(number) if is_beyond(number) => Err(Refusal::new(format_args!(
            "`{place}` is {number}, which is beyond 2^53 − 1, the largest integer of I-JSON"
        ))),
        _ => Ok(()),
    }
}

fn is_beyond(number: &Number) -> bool {
    let size = number
        .as_u64()
        .or_else(|| Some(number.as_i64()?.unsigned_abs()));
    size.is_some_and(|size| size > MAX_INTEGER)
}

/// Reads a value, and refuses a second member of the same name.
struct UniqueMembers;

impl<'de> DeserializeSeed<'de> for UniqueMembers {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueMembers {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let (mut map, mut names) = (Map::new(), HashSet::new());
        while let Some(name) = members.next_key::<String>()? {
            if !names.insert(name.clone()) {
                let name = name.escape_debug();
                return Err(A::Error::custom(format_args!("`{name}` occurs twice")));
            }
            let value = members.next_value_seed(Self)?;
            map.insert(name, value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn canonical(text: &str) -> Result<String, String> {
        let value = parse(text.as_bytes()).map_err(|err| err.to_string())?;
        let text = crate::certificate::canonical::text(&value).map_err(|err| err.to_string())?;
        Ok(String::from_utf8(text).unwrap())
    }

    #[test]
    fn the_example_of_rfc_8785_has_its_text() {
        // RFC 8785, sections 3.2.2 and 3.2.3.
        let input = r#"{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"#;
        let wanted = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(canonical(input).unwrap(), wanted);
        let names = r#"{"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\ud83d\ude00": 5, "\u0080": 6, "\u00f6": 7}"#;
        let sorted: Map<String, Value> = serde_json::from_str(&canonical(names).unwrap()).unwrap();
        let order: Vec<_> = sorted.values().filter_map(Value::as_u64).collect();
        assert_eq!(order, [2, 4, 6, 7, 1, 5, 3]);
    }

    #[test]
    fn what_i_json_does_not_have_is_refused() {
        let twice = canonical(r#"{"a": {"b": 1, "b": 2}}"#).unwrap_err();
        assert!(twice.starts_with("`b` occurs twice"), "{twice}");
        let told = canonical(r#"{"a": [0, 9007199254740992]}"#).unwrap_err();
        let wanted = "`/a/1` is 9007199254740992, which is beyond";
        assert!(told.starts_with(wanted), "{told}");
        assert!(canonical(r#"{"a": -9007199254740992}"#).is_err());
        let found = canonical("[9007199254740991]").unwrap();
        assert_eq!(found, "[9007199254740991]");
        assert!(canonical("{} {}").is_err());
        assert!(canonical(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn the_hash_does_not_depend_on_the_order_of_members() {
        let found = sha256(&json!({"a": 1.0, "b": [2]})).unwrap();
        assert_eq!(found, sha256(&json!({"b": [2], "a": 1})).unwrap());
    }

    proptest! {
        #[test]
        fn a_double_is_the_same_after_its_canonical_text(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite() && value != 0.0);
            let written = text(&json!(value)).unwrap();
            let read: f64 = serde_json::from_slice(&written).unwrap();
            prop_assert_eq!(read.to_bits(), value.to_bits());
        }
    }
}
