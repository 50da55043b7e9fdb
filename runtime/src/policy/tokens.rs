//! Instructions as token ids, for networks that read a fixed number of them.

use std::path::Path;

use tokenizers::Tokenizer;

use crate::policy::{PolicyError, RowError};

/// Makes tokens of instructions: those of a `tokenizer.json`, or their UTF-8 bytes.
pub(in crate::policy) struct Tokens {
    tokenizer: Option<Tokenizer>,
    /// Number of tokens of an instruction.
    pub(in crate::policy) length: usize,
}

impl Tokens {
    /// Reads the tokenizer at `path`; without one, tokens are UTF-8 bytes.
    ///
    /// # Errors
    /// Returns an error if the tokenizer cannot be read.
    pub(in crate::policy) fn open(path: Option<&Path>, length: usize) -> Result<Self, PolicyError> {
        let read =
            |path: &Path| Tokenizer::from_file(path).map_err(|err| PolicyError::file(path, err));
        let tokenizer = path.map(read).transpose()?;
        Ok(Self { tokenizer, length })
    }

    /// Returns the tokens of an instruction, cut off or padded on the right with 0.
    pub(in crate::policy) fn of(&self, instruction: &str) -> Result<Vec<i64>, PolicyError> {
        let mut ids: Vec<i64> = match &self.tokenizer {
            None => instruction.bytes().map(i64::from).collect(),
            Some(tokenizer) => {
                let encoding = tokenizer.encode_fast(instruction, true);
                let encoding = encoding.map_err(|err| RowError::new(err.to_string()))?;
                encoding.get_ids().iter().copied().map(i64::from).collect()
            }
        };
        ids.resize(self.length, 0);
        Ok(ids)
    }
}
