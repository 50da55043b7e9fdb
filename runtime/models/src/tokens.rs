//! The tokens of texts, by the `tokenizer.json` of a checkpoint.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use jobs::refusal::Refusal;
use serde::de::IgnoredAny;
use tokenizers::Tokenizer;

use crate::error::{in_file, not_json, refuse};

/// A tokenizer. The crate panics on some files that are not tokenizers, especially on those that
/// are not even JSON, and on some texts.
#[derive(Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    /// Its file.
    pub(crate) path: PathBuf,
}

impl TextTokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// Refuses a file that is no tokenizer.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        Self::parse(path, &fs::read(path).map_err(in_file(path))?)
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Refusal> {
        serde_json::from_slice::<IgnoredAny>(bytes).map_err(not_json(path))?;
        let made = catch_unwind(|| Tokenizer::from_bytes(bytes));
        let made = made.map_err(|_| refuse(path, "it is not a tokenizer that can be read"))?;
        Ok(Self {
            tokenizer: made.map_err(in_file(path))?,
            path: path.to_owned(),
        })
    }

    /// Returns the id of a special token.
    pub(crate) fn id(&self, token: &str) -> Result<i64, Refusal> {
        let id = self.tokenizer.token_to_id(token).map(i64::from);
        id.ok_or_else(|| refuse(&self.path, format_args!("it has no token `{token}`")))
    }

    /// Returns the ids of a text.
    ///
    /// # Errors
    /// Refuses a text at which the tokenizer fails.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>, Refusal> {
        let encoding = catch_unwind(AssertUnwindSafe(|| self.tokenizer.encode_fast(text, true)));
        let encoding =
            encoding.map_err(|_| refuse(&self.path, "its tokenizer panics at a prompt"))?;
        let encoding = encoding.map_err(in_file(&self.path))?;
        Ok(encoding.get_ids().iter().copied().map(i64::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use rig::hostile::Target;

    use super::*;

    #[test]
    fn hostile_tokenizer() {
        let path = Path::new("tokenizer.json");
        let text = "open the drawer, <|image_pad|> aaaaaaaaaaaaaaaaaaaaaaaaaaaaa! \u{e9}\u{1f600}";
        let target = Target::new("tokenizer").longest(8192).one_in(100);
        target.run(|input| {
            let tokenizer = TextTokenizer::parse(path, input);
            let encoding = tokenizer.and_then(|tokenizer| tokenizer.encode(text));
            encoding
                .map(|ids| ids.len())
                .map_err(|err| err.to_string().len())
        });
    }
}
