//! `latency` of a job as it is written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::entry::Wrong;
use crate::latency::{Delay, Hold, InferenceLatency, MAX_MS, MAX_STEPS};

/// `"measured"`, or an object with one of `steps`, `ms` and `measured`, and perhaps `hold`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum WrittenLatency {
    Word(Word),
    Fields(Fields),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(extend("wanted" = "\"measured\""))]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    Measured,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct Fields {
    #[schemars(range(min = 0, max = MAX_STEPS))]
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<u64>,
    #[schemars(range(min = 0, max = MAX_MS))]
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<Hold>,
}

impl WrittenLatency {
    pub(super) fn read(self) -> Result<InferenceLatency, Wrong> {
        let Self::Fields(fields) = self else {
            let (delay, hold) = (Delay::Measured, Hold::default());
            return Ok(InferenceLatency { delay, hold });
        };
        let wrong = |field, reason: &str| Err((field, reason.to_owned()));
        let delay = match (fields.steps, fields.ms, fields.measured) {
            (Some(steps), None, None) => Delay::Steps(steps),
            (None, Some(ms), None) => Delay::Ms(ms),
            (None, None, Some(true)) => Delay::Measured,
            (None, None, Some(false)) => {
                let reason = "found false, expected true, or no latency";
                return wrong("latency.measured", reason);
            }
            (None, None, None) => {
                return wrong("latency.steps", "it is missing, and ms and measured too");
            }
            _ => {
                let reason = "only one of steps, ms and measured can be given";
                return wrong("latency.steps", reason);
            }
        };
        let hold = fields.hold.unwrap_or_default();
        Ok(InferenceLatency { delay, hold })
    }
}

impl From<InferenceLatency> for WrittenLatency {
    fn from(InferenceLatency { delay, hold }: InferenceLatency) -> Self {
        let hold = Some(hold).filter(|hold| *hold != Hold::default());
        let fields = Fields {
            hold,
            ..Fields::default()
        };
        Self::Fields(match delay {
            Delay::Steps(steps) => Fields {
                steps: Some(steps),
                ..fields
            },
            Delay::Ms(ms) => Fields {
                ms: Some(ms),
                ..fields
            },
            Delay::Measured => Fields {
                measured: Some(true),
                ..fields
            },
        })
    }
}
