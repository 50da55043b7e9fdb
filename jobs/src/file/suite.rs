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
pub(crate) fn check(suite: &Suite) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::file::parse;
    use crate::job::Suite;

    fn read(suite: &Value) -> Result<Option<Suite>, String> {
        let entry = json!({"name": "a", "arena_env_args": {"environment": "reach"},
                           "policy_type": "scripted", "num_episodes": 1, "suite": suite});
        let jobs = parse(&json!({"jobs": [entry]})).map_err(|err| err.to_string())?;
        Ok(jobs[0].suite.clone())
    }

    #[test]
    fn a_job_names_the_suite_that_it_comes_from() {
        let suite = Suite {
            name: "libero_10".to_owned(),
            protocol: "1".to_owned(),
            overrides: vec!["num_episodes".to_owned()],
        };
        let written = serde_json::to_value(&suite).unwrap();
        assert_eq!(read(&written), Ok(Some(suite)));
        assert_eq!(read(&Value::Null), Ok(None));
    }

    #[test]
    fn a_suite_that_cannot_be_shown_is_refused() {
        for (suite, told) in [
            (json!("libero_10"), "expected an object"),
            (
                json!({"name": "libero_10"}),
                "field protocol: it is missing",
            ),
            (
                json!({"name": "a", "protocol": "1", "override": []}),
                "did you mean `overrides`?",
            ),
            (
                json!({"name": "\u{1b}[2J", "protocol": "1"}),
                "printable bytes",
            ),
            (
                json!({"name": "x".repeat(101), "protocol": "1"}),
                "printable bytes",
            ),
            (
                json!({"name": "a", "protocol": "1", "overrides": [1]}),
                "a list of field names",
            ),
            (
                json!({"name": "a", "protocol": "1", "overrides": vec!["x"; 65]}),
                "at most 64",
            ),
        ] {
            let refusal = read(&suite).unwrap_err();
            assert!(
                refusal.starts_with("job 0 (a) field suite") && refusal.contains(told),
                "{suite}: {refusal}"
            );
        }
    }
}
