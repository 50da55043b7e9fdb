//! Reads `suite` of a job: which protocol of which benchmark suite it follows.

use serde_json::Value;

use crate::fields::{FieldError, FileFields};
use crate::job::Suite;
use crate::printable::printable_line;

/// Names in `suite` that are read.
const KNOWN: &[&str] = &["name", "protocol", "overrides"];

/// Maximum length of a name in bytes.
const MAX_NAME: usize = 100;

/// Maximum number of overridden fields; a job has fewer.
const MAX_OVERRIDES: usize = 64;

pub(super) fn suite(fields: &mut FileFields) -> Result<Option<Suite>, FieldError> {
    let place = fields.place("suite");
    let value = match fields.take("suite") {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let mut read = FileFields::new(&place, value)?;
    read.know(KNOWN);
    let suite = Suite {
        name: read.string("name")?,
        protocol: read.string("protocol")?,
        overrides: overrides(&mut read)?,
    };
    read.finish(KNOWN)?;
    check(&suite).map_err(|reason| fields.refuse("suite", &reason))?;
    Ok(Some(suite))
}

fn overrides(fields: &mut FileFields) -> Result<Vec<String>, FieldError> {
    match fields.take("overrides") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(found) => serde_json::from_value(found.clone())
            .map_err(|_| fields.wrong("overrides", Some(found), "expected a list of field names")),
    }
}

/// Checks that names can be shown in tables, and that there are few of them.
///
/// # Errors
/// Returns the reason why a suite is refused.
fn check(suite: &Suite) -> Result<(), String> {
    let names = [&suite.name, &suite.protocol].into_iter();
    for name in names.chain(&suite.overrides) {
        if name.is_empty() || name.len() > MAX_NAME || printable_line(name) != *name {
            return Err(format!(
                "found `{}`, expected 1 to {MAX_NAME} printable bytes",
                name.escape_debug()
            ));
        }
    }
    match suite.overrides.len() {
        count if count > MAX_OVERRIDES => Err(format!(
            "found {count} overrides, expected at most {MAX_OVERRIDES}"
        )),
        _ => Ok(()),
    }
}
