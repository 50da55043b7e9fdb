//! Keeps secrets out of written files and command lines: `plan.json`, journals, reports and pages
//! are meant to be shared, and every user of a machine can read the arguments of its processes.
//!
//! A field with a secret is refused, and the error names the field to use instead. Secrets are
//! recognized by field names, as in the settings of most programs, and by the form of URLs.

mod redaction;

use serde_json::{Map, Value};

pub use redaction::Redaction;

use crate::job::Job;
use crate::model_server::{Health, ModelServer};

/// Endings of field names that mean a secret, as words; names join words by nothing, `_`, `-` or
/// capitals.
const SECRETS: &[&[&str]] = &[
    &["password"],
    &["passwd"],
    &["passphrase"],
    &["secret"],
    &["credential"],
    &["credentials"],
    &["authorization"],
    &["bearer"],
    &["apikey"],
    &["apitoken"],
    &["api", "key"],
    &["access", "key"],
    &["secret", "key"],
    &["private", "key"],
    &["auth", "key"],
    &["api", "token"],
    &["access", "token"],
    &["auth", "token"],
    &["bearer", "token"],
    &["hub", "token"],
    &["hf", "token"],
    &["refresh", "token"],
    &["session", "token"],
    &["github", "token"],
    &["gitlab", "token"],
    &["wandb", "token"],
];

/// Words before `token` in the name of an environment variable that mean a token of a tokenizer.
const OF_TOKENIZERS: &[&str] = &[
    "pad", "eos", "bos", "unk", "mask", "sep", "cls", "image", "video", "stop",
];

/// A secret where a reference to one is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} contains a secret, which plan.json and other files would show; {wanted}")]
pub struct Secret {
    /// Job and field.
    pub place: String,
    /// What to use instead, as a clause.
    pub wanted: String,
}

/// Searches jobs and the model server for secrets.
///
/// # Errors
/// Returns the first secret, without its value.
pub fn check(jobs: &[Job], server: Option<&ModelServer>) -> Result<(), Secret> {
    for job in jobs {
        let place = format!("job {} ({})", job.index.0, job.name);
        for (field, object) in [
            ("policy_config_dict", &job.policy_config),
            ("arena_env_args", &job.env_args),
            ("variations", &job.variations),
        ] {
            check_object(&format!("{place} field {field}"), object)?;
        }
    }
    server.map_or(Ok(()), check_server)
}

/// Searches an object of settings at `place` for secrets.
///
/// # Errors
/// Returns the first secret, without its value.
pub fn check_object(place: &str, object: &Map<String, Value>) -> Result<(), Secret> {
    let is_environment = place.ends_with(".env") || place.ends_with("field env");
    for (name, value) in object {
        let place = format!("{place}.{name}");
        let user = value
            .as_str()
            .and_then(|text| text.rsplit("://").next()?.split_once('@'));
        if name.ends_with("host") && user.is_some_and(|(user, _)| user.contains(':')) {
            let wanted = "write the host without user and password".to_owned();
            return Err(Secret { place, wanted });
        }
        let is_named = is_secret(name) || (is_environment && is_secret_variable(name));
        if is_named && value.as_str().is_some_and(|text| !text.is_empty()) {
            let wanted = match is_environment {
                true => inherited(name),
                false => format!(
                    "put it into an environment variable, and name that in `{name}_env` if there is such a field; programs \
                     inherit the environment of rrun"
                ),
            };
            return Err(Secret { place, wanted });
        }
        check_value(&place, value)?;
    }
    Ok(())
}

fn check_value(place: &str, value: &Value) -> Result<(), Secret> {
    match value {
        Value::Object(object) => check_object(place, object),
        Value::Array(items) => items.iter().try_for_each(|item| check_value(place, item)),
        Value::String(text) => check_text(place, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Refuses a URL with a password, or with a key in its query.
fn check_text(place: &str, text: &str) -> Result<(), Secret> {
    if !is_secret_url(text) {
        return Ok(());
    }
    let wanted =
        "write the URL without it: programs inherit the environment of rrun, and planners take the name of a variable \
                  (`api_key_env`)"
            .to_owned();
    Err(Secret {
        place: place.to_owned(),
        wanted,
    })
}

fn check_server(server: &ModelServer) -> Result<(), Secret> {
    if let Some(name) = server
        .env
        .iter()
        .find(|(name, value)| is_secret_variable(name) && !value.is_empty())
    {
        return Err(Secret {
            place: format!("model_server field env.{}", name.0),
            wanted: inherited(name.0),
        });
    }
    let place = "model_server field command";
    let wanted = || {
        let wanted = "every user of the machine can read the arguments of a process; most servers \
            also read it from an environment variable (vllm: VLLM_API_KEY), which they inherit \
            from rrun";
        Secret {
            place: place.to_owned(),
            wanted: wanted.to_owned(),
        }
    };
    // A command line for the shell is a single argument, so it is split.
    let words: Vec<&str> = server
        .command
        .iter()
        .flat_map(|word| word.split_whitespace())
        .collect();
    for (nth, word) in words.iter().enumerate() {
        check_text(place, word.trim_matches(['\'', '"']))?;
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None if word.starts_with('-') => (*word, words.get(nth + 1).copied()),
            None => continue,
        };
        let name = name.trim_start_matches('-');
        let value = value.map_or("", |value| value.trim_matches(['\'', '"']));
        let is_given = !value.is_empty() && !value.starts_with(['$', '-']);
        if is_given && (is_secret(name) || is_secret_variable(name)) {
            return Err(wanted());
        }
    }
    match &server.health {
        Health::Url(url) => check_text(
            "model_server field health_url",
            &format!("http://h{}", url.path),
        ),
        Health::Port(_) => Ok(()),
    }
}

fn inherited(name: &str) -> String {
    format!("set `{name}` in the environment of rrun, from which it is inherited")
}

/// Returns whether the jobs or the server refer to a secret by an environment variable or a file.
pub fn is_referred_to(jobs: &[Job], server: Option<&ModelServer>) -> bool {
    fn refers(value: &Value) -> bool {
        match value {
            Value::Object(object) => object.iter().any(|(name, value)| {
                let of = name
                    .strip_suffix("_env")
                    .or_else(|| name.strip_suffix("_file"));
                (of.is_some_and(is_secret) && !value.is_null()) || refers(value)
            }),
            Value::Array(items) => items.iter().any(refers),
            _ => false,
        }
    }
    let of_job = |job: &Job| {
        [&job.policy_config, &job.env_args, &job.variations]
            .into_iter()
            .flat_map(|object| object.iter())
            .any(|(name, value)| {
                refers(&Value::Object(Map::from_iter([(
                    name.clone(),
                    value.clone(),
                )])))
            })
    };
    // The command line of a server may contain a variable with a key.
    let of_server = |server: &ModelServer| server.command.iter().any(|word| word.contains('$'));
    jobs.iter().any(of_job) || server.is_some_and(of_server)
}

/// Removes the secrets from a job that an older version has written to its plan.
pub fn redact(job: &mut Job) {
    for object in [
        &mut job.policy_config,
        &mut job.env_args,
        &mut job.variations,
    ] {
        redact_object(object, false);
    }
}

fn redact_object(object: &mut Map<String, Value>, is_environment: bool) {
    for (name, value) in object {
        let is_named = is_secret(name) || (is_environment && is_secret_variable(name));
        match value {
            Value::Object(inner) => redact_object(inner, name == "env"),
            Value::String(text) if (is_named && !text.is_empty()) || is_secret_url(text) => {
                *text = "***".to_owned()
            }
            _ => {}
        }
    }
}

/// Returns whether a field of this name holds a secret.
fn is_secret(name: &str) -> bool {
    let words = words(name);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    words == ["token"] || SECRETS.iter().any(|secret| words.ends_with(secret))
}

/// Returns whether an environment variable of this name holds a secret; tokens of a tokenizer are
/// no secrets.
fn is_secret_variable(name: &str) -> bool {
    let words = words(name);
    match &words[..] {
        [.., before, last] if last == "token" => !OF_TOKENIZERS.contains(&before.as_str()),
        // A personal access token.
        [_, .., last] if last == "pat" => true,
        _ => is_secret(name),
    }
}

/// Splits a name into words: `remoteApi-token` into `remote`, `api`, `token`.
fn words(name: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut was_lower = false;
    for letter in name.chars() {
        let is_end = !letter.is_alphanumeric() || (letter.is_uppercase() && was_lower);
        if is_end && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Returns whether a text is `scheme://user:password@host`, or a URL whose query has a key.
fn is_secret_url(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else {
        return false;
    };
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    let has_password = user
        .and_then(|user| user.split_once(':'))
        .is_some_and(|(_, password)| !password.is_empty());
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let fields = query
        .split('#')
        .next()
        .unwrap_or("")
        .split('&')
        .filter_map(|field| field.split_once('='));
    let mut fields = fields.filter(|(_, value)| !value.is_empty());
    has_password || fields.any(|(name, _)| is_secret(name) || matches!(name, "key" | "sig"))
}

#[cfg(test)]
mod tests;
