//! Canonical JSON: one text for one value, so that its hash does not depend on who wrote it.
//!
//! The text is that of RFC 8785 (JSON Canonicalization Scheme): members sorted by their names as
//! UTF-16, no blanks, numbers as ECMAScript prints doubles. RFC 8785 takes I-JSON (RFC 7493) only. So
//! a member that occurs twice is refused, and so is an integer that a double cannot hold.

use jobs::refusal::Refusal;
use jobs::sha256;
use serde::Serialize;
use serde::de::Error as _;
use serde_json::{Number, Value};

/// The largest integer of I-JSON: from here on, neighbouring integers are one double.
const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Parses JSON in which no object has two members of the same name: each member has one colon
/// outside of strings, so that one is noticed which another has replaced.
///
/// # Errors
/// Returns the first error of form.
pub fn parse(text: &[u8]) -> Result<Value, serde_json::Error> {
    let value = serde_json::from_slice(text)?;
    match colons(text) == members(&value) {
        true => Ok(value),
        false => Err(serde_json::Error::custom(
            "a name occurs twice in an object",
        )),
    }
}

/// Counts the colons outside of strings.
fn colons(text: &[u8]) -> usize {
    let (mut count, mut is_in_string, mut is_escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_in_string = !is_in_string,
            b':' if !is_in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Counts the members of all objects in a value.
fn members(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(members).sum(),
        Value::Object(map) => map.len() + map.values().map(members).sum::<usize>(),
        _ => 0,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, json};

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
        assert_eq!(twice, "a name occurs twice in an object");
        let strings = r#"{"a:\\": ":", "b\":": [{"c": "\\"}, {"c": "\":"}]}"#;
        assert!(canonical(strings).is_ok());
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
