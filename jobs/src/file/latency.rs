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
