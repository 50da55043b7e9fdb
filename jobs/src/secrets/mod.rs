//! Keeps secrets out of written files and command lines: `plan.json`, journals, reports and pages
//! are meant to be shared, and every user of a machine can read the arguments of its processes.
//!
//! A field with a secret is refused, and the error names the field to use instead. Secrets are
//! recognized by field names, as in the settings of most programs, and by the form of URLs.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::job::Job;
use crate::model_server::{Health, ModelServer};
use crate::refusal::Refusal;

/// Endings of field names that mean a secret, as words in lower case; names join words by nothing,
/// `_`, `-` or capitals.
const SECRETS: &str = "password, passwd, passphrase, secret, credential, credentials, \
    authorization, bearer, apikey, apitoken, \
    api key, access key, secret key, private key, auth key, \
    api token, access token, auth token, bearer token, hub token, hf token, refresh token, \
    session token, github token, gitlab token, wandb token";

/// Words before `token` in the name of an environment variable that mean a token of a tokenizer.
const OF_TOKENIZERS: &[&str] = &[
    "pad", "eos", "bos", "unk", "mask", "sep", "cls", "image", "video", "stop",
];

/// Searches jobs and the model server for secrets.
///
/// # Errors
/// Refuses the first secret, without its value.
pub fn check(jobs: &[Job], server: Option<&ModelServer>) -> Result<(), Refusal> {
    for job in jobs {
        let place = job.place();
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
/// Refuses the first secret, without its value.
pub fn check_object(place: &str, object: &Map<String, Value>) -> Result<(), Refusal> {
    let is_environment = place.ends_with(".env");
    for (name, value) in object {
        let place = format!("{place}.{name}");
        let is_named = match is_environment {
            true => is_secret_variable(name),
            false => is_secret(name),
        };
        match value.as_str().filter(|text| !text.is_empty()) {
            Some(text) if name.ends_with("host") && is_with_password(text) => {
                return Err(secret(&place, "write the host without user and password"));
            }
            Some(_) if is_named && is_environment => return Err(secret(&place, &inherited(name))),
            // The key of a planner may be a number.
            text if text.is_some() && is_named || name == "api_key" && value.is_number() => {
                let wanted = format!(
                    "put it into an environment variable, and name that in `{name}_env` if there is \
                     such a field; programs inherit the environment of rrun"
                );
                return Err(secret(&place, &wanted));
            }
            _ => check_value(&place, value)?,
        }
    }
    Ok(())
}

fn check_value(place: &str, value: &Value) -> Result<(), Refusal> {
    match value {
        Value::Object(object) => check_object(place, object),
        Value::Array(items) => items.iter().try_for_each(|item| check_value(place, item)),
        Value::String(text) => check_text(place, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Refuses a URL with a password, or with a key in its query.
fn check_text(place: &str, text: &str) -> Result<(), Refusal> {
    if !is_secret_url(text) {
        return Ok(());
    }
    let wanted = "write the URL without it: programs inherit the environment of rrun, and planners \
                  take the name of a variable (`api_key_env`)";
    Err(secret(place, wanted))
}

fn check_server(server: &ModelServer) -> Result<(), Refusal> {
    let mut env = server.env.iter();
    if let Some((name, _)) = env.find(|(name, value)| is_secret_variable(name) && !value.is_empty())
    {
        let place = format!("model_server.env.{name}");
        return Err(secret(&place, &inherited(name)));
    }
    let place = "model_server.command";
    // A command line for the shell is a single argument, so it is split.
    let words = server.command.iter();
    let words: Vec<&str> = words.flat_map(|word| word.split_whitespace()).collect();
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
            let wanted = "every user of the machine can read the arguments of a process; most \
                          servers also read it from an environment variable (vllm: VLLM_API_KEY), \
                          which they inherit from rrun";
            return Err(secret(place, wanted));
        }
    }
    match &server.health {
        Health::Url(url) => {
            let url = format!("http://h{}", url.path);
            check_text("model_server.health_url", &url)
        }
        Health::Port(_) => Ok(()),
    }
}

/// Refuses the secret at a place; `wanted` says what to use instead, as a clause.
fn secret(place: &str, wanted: &str) -> Refusal {
    Refusal::new(format_args!(
        "{place} contains a secret, which files and process lists would show; {wanted}"
    ))
}

fn inherited(name: &str) -> String {
    format!("set `{name}` in the environment of rrun, from which it is inherited")
}

/// Returns whether the jobs or the server refer to a secret by an environment variable or a file.
pub fn is_referred_to(jobs: &[Job], server: Option<&ModelServer>) -> bool {
    fn refers(name: &str, value: &Value) -> bool {
        let of = name
            .strip_suffix("_env")
            .or_else(|| name.strip_suffix("_file"));
        let is_reference = of.is_some_and(is_secret) && !value.is_null();
        let is_inside = || match value {
            Value::Object(object) => object.iter().any(|(name, value)| refers(name, value)),
            Value::Array(items) => items.iter().any(|item| refers("", item)),
            _ => false,
        };
        is_reference || is_inside()
    }
    let mut settings = jobs
        .iter()
        .flat_map(|job| [&job.policy_config, &job.env_args, &job.variations])
        .flatten();
    // The command line of a server may contain a variable with a key.
    let of_server = |server: &ModelServer| server.command.iter().any(|word| word.contains('$'));
    settings.any(|(name, value)| refers(name, value)) || server.is_some_and(of_server)
}

/// Returns whether a field of this name holds a secret.
fn is_secret(name: &str) -> bool {
    let words = words(name).join(" ");
    let ends_with = |secret: &str| {
        let before = words.strip_suffix(secret);
        before.is_some_and(|before| before.is_empty() || before.ends_with(' '))
    };
    words == "token" || SECRETS.split(", ").any(ends_with)
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

/// Returns whether a host, with or without a scheme, has `user:password` before it.
fn is_with_password(host: &str) -> bool {
    password(host)
        .or(password(&format!("scheme://{host}")))
        .is_some()
}

/// Returns whether a text is `scheme://user:password@host`, or a URL whose query has a key.
fn is_secret_url(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else {
        return false;
    };
    let has_password = password(text).is_some_and(|password| !password.is_empty());
    let rest = &rest[rest.find(['/', '?', '#']).unwrap_or(rest.len())..];
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or("");
    let fields = query.split('&').filter_map(|field| field.split_once('='));
    let mut fields = fields.filter(|(_, value)| !value.is_empty());
    has_password || fields.any(|(name, _)| is_secret(name) || matches!(name, "key" | "sig"))
}

/// Shorter values are left in the text: they would match ordinary words.
const SHORTEST: usize = 4;

/// The secrets of an environment, which a program that inherits it may print.
#[derive(Clone, Default)]
pub struct Redaction {
    secrets: Vec<String>,
}

impl Redaction {
    /// Collects the values of variables with a secret's name, and the passwords of URLs.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let secret = |(name, value): (String, String)| match is_secret_variable(&name) {
            true => Some(value),
            false => password(&value).map(str::to_owned),
        };
        let mut secrets: Vec<_> = variables.into_iter().filter_map(secret).collect();
        secrets.retain(|secret| secret.len() >= SHORTEST);
        // A secret that contains another one is replaced as a whole.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets }
    }

    /// Replaces each secret in a text by `***`.
    pub fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut redacted = Cow::Borrowed(text);
        for secret in &self.secrets {
            if redacted.contains(secret) {
                redacted = Cow::Owned(redacted.replace(secret, "***"));
            }
        }
        redacted
    }
}

/// Returns the password of `scheme://user:password@host`.
fn password(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

#[cfg(test)]
mod tests;
