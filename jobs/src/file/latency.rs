//! Reads `latency` of a job.

use serde_json::Value;

use crate::fields::{FieldError, FileFields};
use crate::latency::{Delay, Hold, InferenceLatency, MAX_MS, MAX_STEPS};

const NAME: &str = "latency";

const FIELDS: &[&str] = &["steps", "ms", "measured", "hold"];

/// Reads `latency`: `"measured"`, or an object with one of `steps`, `ms` and `measured`, and
/// perhaps `hold`.
pub(super) fn latency(fields: &mut FileFields) -> Result<Option<InferenceLatency>, FieldError> {
    let place = fields.place(NAME);
    let value = match fields.take(NAME) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(word)) if word == "measured" => {
            return Ok(Some(InferenceLatency {
                delay: Delay::Measured,
                hold: Hold::default(),
            }));
        }
        Some(value @ Value::Object(_)) => value,
        other => {
            let wanted = "expected \"measured\", or an object with one of steps, ms and measured";
            return Err(fields.wrong(NAME, other, wanted));
        }
    };
    let mut object = FileFields::new(&place, value)?;
    // First of all: a misspelt field would be reported as a missing one.
    if let Some(field) = object.left().find(|field| !FIELDS.contains(field)) {
        return Err(object.unknown(field, FIELDS));
    }
    let delay = delay(&mut object)?;
    let hold = hold(&mut object)?;
    Ok(Some(InferenceLatency { delay, hold }))
}

fn delay(object: &mut FileFields) -> Result<Delay, FieldError> {
    let steps = object.whole("steps")?;
    let ms = object.take("ms").filter(|value| !value.is_null());
    let measured = object.bool("measured")?;
    match (steps, ms, measured) {
        (Some(steps), None, None) if Delay::Steps(steps).is_in_range() => Ok(Delay::Steps(steps)),
        (Some(steps), None, None) => {
            let reason = format!("found {steps}, expected a whole number up to {MAX_STEPS}");
            Err(object.refuse("steps", &reason))
        }
        (None, Some(found), None) => match found.as_f64() {
            Some(ms) if Delay::Ms(ms).is_in_range() => Ok(Delay::Ms(ms)),
            _ => {
                let wanted = format!("expected a number of milliseconds up to {MAX_MS}");
                Err(object.wrong("ms", Some(found), &wanted))
            }
        },
        (None, None, Some(true)) => Ok(Delay::Measured),
        (None, None, Some(false)) => {
            Err(object.refuse("measured", "found false, expected true, or no latency"))
        }
        (None, None, None) => Err(object.refuse("steps", "it is missing, and ms and measured too")),
        _ => Err(object.refuse("steps", "only one of steps, ms and measured can be given")),
    }
}

fn hold(object: &mut FileFields) -> Result<Hold, FieldError> {
    match object.take("hold") {
        None | Some(Value::Null) => Ok(Hold::default()),
        Some(Value::String(word)) if word == "last" => Ok(Hold::Last),
        Some(Value::String(word)) if word == "zero" => Ok(Hold::Zero),
        other => Err(object.wrong("hold", other, "expected last or zero")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(latency: Value) -> Result<Option<InferenceLatency>, String> {
        let job = json!({"latency": latency});
        let mut fields = FileFields::new("job 0 (a)", &job).unwrap();
        crate::file::latency::latency(&mut fields).map_err(|err| err.to_string())
    }

    fn delay(latency: Value) -> Delay {
        read(latency).unwrap().unwrap().delay
    }

    #[test]
    fn every_spelling_is_read() {
        assert_eq!(read(Value::Null), Ok(None));
        assert_eq!(delay(json!({"steps": 0})), Delay::Steps(0));
        assert_eq!(delay(json!({"steps": 3})), Delay::Steps(3));
        assert_eq!(delay(json!({"ms": 120})), Delay::Ms(120.0));
        assert_eq!(delay(json!({"ms": 33.3, "steps": null})), Delay::Ms(33.3));
        assert_eq!(delay(json!({"measured": true})), Delay::Measured);
        assert_eq!(delay(json!("measured")), Delay::Measured);
        let zero = read(json!({"measured": true, "hold": "zero"}));
        assert_eq!(zero.unwrap().unwrap().hold, Hold::Zero);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_place() {
        let refused = [
            (
                json!(3),
                "job 0 (a) field latency: found 3, expected \"measured\"",
            ),
            (json!("fast"), "found \"fast\", expected \"measured\""),
            (
                json!({}),
                "field steps: it is missing, and ms and measured too",
            ),
            (
                json!({"steps": -1}),
                "field steps: found -1, expected a whole number",
            ),
            (
                json!({"steps": 4097}),
                "found 4097, expected a whole number up to 4096",
            ),
            (
                json!({"steps": 1, "ms": 2}),
                "only one of steps, ms and measured",
            ),
            (
                json!({"ms": -0.5}),
                "field ms: found -0.5, expected a number of milliseconds",
            ),
            (
                json!({"ms": 1e300}),
                "expected a number of milliseconds up to 600000",
            ),
            (json!({"measured": false}), "field measured: found false"),
            (
                json!({"steps": 1, "hold": "still"}),
                "field hold: found \"still\", expected last",
            ),
            (
                json!({"stps": 1, "ms": 5}),
                "unknown field `stps`; did you mean `steps`?",
            ),
        ];
        for (latency, text) in refused {
            let found = read(latency.clone()).unwrap_err();
            assert!(found.contains(text), "{latency}: {found}");
        }
    }
}
