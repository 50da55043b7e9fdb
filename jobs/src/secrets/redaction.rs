//! Removes the secrets of an environment from what a program prints.

use std::borrow::Cow;

use crate::secrets::is_secret_variable;

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
pub(super) fn password(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tokens_and_passwords_of_urls_are_replaced_and_nothing_else() {
        let variables = [
            ("WANDB_API_KEY", "0123abcd"),
            ("HF_TOKEN", "hf_0123abcd"),
            ("MLFLOW_TRACKING_URI", "https://me:pass word@host:1/x@y"),
            ("MLFLOW_TRACKING_PASSWORD", "a"),
            ("HOME", "/home/me"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let redaction = Redaction::new(variables);
        let found = redaction.apply("0123abcd hf_0123abcd https://me:pass word@host /home/me");
        assert_eq!(found, "*** *** https://me:***@host /home/me");
        assert!(matches!(redaction.apply("a plain text"), Cow::Borrowed(_)));
    }
}
