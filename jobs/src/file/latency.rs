//! `latency` of a job as it is written.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::file::entry::Wrong;
use crate::latency::{Delay, Hold, InferenceLatency, MAX_MS, MAX_STEPS};

/// `"measured"`, or an object with one of `steps`, `ms` and `measured`, and perhaps `hold`.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum WrittenLatency {
    Word(Word),
    Fields(Fields),
}

#[derive(Deserialize, JsonSchema)]
#[schemars(extend("wanted" = "\"measured\""))]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    Measured,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Fields {
    #[schemars(range(min = 0, max = MAX_STEPS))]
    steps: Option<u64>,
    #[schemars(range(min = 0, max = MAX_MS))]
    ms: Option<f64>,
    #[schemars(extend("const" = true, "wanted" = "true, or no latency"))]
    measured: Option<bool>,
    #[serde(default)]
    hold: Hold,
}

impl WrittenLatency {
    pub(super) fn read(self) -> Result<InferenceLatency, Wrong> {
        let Self::Fields(fields) = self else {
            let (delay, hold) = (Delay::Measured, Hold::default());
            return Ok(InferenceLatency { delay, hold });
        };
        let wrong = |reason: &str| Err(("latency.steps", reason.to_owned()));
        let delay = match (fields.steps, fields.ms, fields.measured) {
            (Some(steps), None, None) => Delay::Steps(steps),
            (None, Some(ms), None) => Delay::Ms(ms),
            (None, None, Some(_)) => Delay::Measured,
            (None, None, None) => return wrong("it is missing, and ms and measured too"),
            _ => return wrong("only one of steps, ms and measured can be given"),
        };
        let hold = fields.hold;
        Ok(InferenceLatency { delay, hold })
    }
}

/// Returns a latency as it is written.
pub(super) fn written(InferenceLatency { delay, hold }: InferenceLatency) -> Value {
    let mut written = match delay {
        Delay::Steps(steps) => json!({ "steps": steps }),
        Delay::Ms(ms) => json!({ "ms": ms }),
        Delay::Measured => json!({"measured": true}),
    };
    if hold != Hold::default() {
        written["hold"] = json!(hold);
    }
    written
}
