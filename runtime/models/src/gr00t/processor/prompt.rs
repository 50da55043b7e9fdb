//! Converts instructions to token ids.
//!
//! ```text
//! instruction ─► formalize ─► chat template ─► one placeholder per image token ─► tokenizer ─► ids
//! ```
//!
//! The ids of special tokens come from the files, because a small vocabulary has different ones.

use std::collections::HashMap;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, fs};

use jobs::refusal::Refusal;
use serde::de::IgnoredAny;
use tokenizers::Tokenizer;

use crate::error::{in_file, input, lacks, not_json, refuse};
use crate::gr00t::processor::field::Json;
use crate::gr00t::processor::formalize::formalize;
use crate::gr00t::processor::template::ChatTemplate;

/// The template's placeholder for a picture; it is repeated for each of the picture's tokens.
const IMAGE_PAD: &str = "<|image_pad|>";
/// The padding token, unless `tokenizer_config.json` says otherwise.
const PADDING: &str = "<|endoftext|>";
/// Maximum number of cached prompts; an evaluation has a few instructions.
const REMEMBERED: usize = 1024;
/// Maximum size of cached prompts in bytes, because clients of a server decide how long they are.
/// An instruction with the tokens of two pictures has 2 kB.
const REMEMBERED_BYTES: usize = 16 << 20;

/// An instruction, and the number of tokens of each picture in the order of the prompt.
type InstructionKey = (String, Vec<usize>);

/// Builds prompts and caches them.
pub struct Prompts {
    template: ChatTemplate,
    tokenizer: Tokenizer,
    path: PathBuf,
    image_id: i64,
    padding_id: i64,
    formalize: bool,
    made: Mutex<PromptCache>,
}

/// The cached prompts.
#[derive(Default)]
struct PromptCache {
    by_instruction: HashMap<InstructionKey, Arc<[i64]>>,
    bytes: usize,
}

impl PromptCache {
    /// Caches a prompt, and drops all others if there are too many.
    fn insert(&mut self, asked: InstructionKey, ids: Arc<[i64]>) {
        let bytes =
            asked.0.len() + asked.1.len() * size_of::<usize>() + ids.len() * size_of::<i64>();
        if bytes > REMEMBERED_BYTES {
            return;
        }
        if self.by_instruction.len() >= REMEMBERED || self.bytes + bytes > REMEMBERED_BYTES {
            *self = Self::default();
        }
        if self.by_instruction.insert(asked, ids).is_none() {
            self.bytes += bytes;
        }
    }
}

impl fmt::Debug for Prompts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompts")
            .field("path", &self.path)
            .field("image_id", &self.image_id)
            .finish_non_exhaustive()
    }
}

impl Prompts {
    /// Reads `tokenizer.json`, `tokenizer_config.json` and the chat template from the backbone's
    /// directory.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the file that is missing or cannot be used.
    pub fn read(dir: &Path, formalize: bool) -> Result<Self, Refusal> {
        let path = dir.join("tokenizer.json");
        if !path.is_file() {
            return Err(lacks(dir, "`tokenizer.json`"));
        }
        let tokenizer = read_tokenizer(&path)?;
        let id = |token: &str| match tokenizer.token_to_id(token) {
            Some(id) => Ok(i64::from(id)),
            None => Err(refuse(&path, format!("it has no token `{token}`"))),
        };
        let (image_id, padding_id) = (
            id(IMAGE_PAD)?,
            id(&padding(&dir.join("tokenizer_config.json"))?)?,
        );
        check_image_id(&dir.join("config.json"), image_id)?;
        let template = ChatTemplate::read(dir)?;
        let made = Mutex::default();
        let prompts = Self {
            template,
            tokenizer,
            path,
            image_id,
            padding_id,
            formalize,
            made,
        };
        prompts.render("", 2)?;
        Ok(prompts)
    }

    /// Returns the id that pads prompts on the left.
    pub fn padding_id(&self) -> i64 {
        self.padding_id
    }

    /// Returns the id of the placeholder for one token of a picture.
    pub fn image_id(&self) -> i64 {
        self.image_id
    }

    /// Returns the token ids of `text` without a template; added tokens are recognised.
    ///
    /// # Errors
    /// Returns [`Refusal`] if the tokenizer fails.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>, Refusal> {
        encode(&self.tokenizer, &self.path, text)
    }

    /// Returns the prompt as text, with one placeholder per picture.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the template fails, or if the instruction itself contains a
    /// placeholder.
    pub fn render(&self, instruction: &str, images: usize) -> Result<String, Refusal> {
        let instruction = if self.formalize {
            formalize(instruction)
        } else {
            instruction.to_owned()
        };
        let rendered = self.template.render(images, &instruction)?;
        let found = rendered.matches(IMAGE_PAD).count();
        if found == images {
            return Ok(rendered);
        }
        if instruction.contains(IMAGE_PAD) {
            let wanted = format!("expected text without `{IMAGE_PAD}`");
            return Err(input("the instruction", format!("`{instruction}`"), wanted));
        }
        let reason = format!("it writes `{IMAGE_PAD}` {found} times for {images} pictures");
        Err(refuse(self.template.path(), reason))
    }

    /// Returns the token ids of the prompt for an instruction and for pictures of `image_tokens`
    /// tokens each.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the template or the tokenizer fails, or if the instruction
    /// itself contains a placeholder.
    pub fn tokens(&self, instruction: &str, image_tokens: &[usize]) -> Result<Arc<[i64]>, Refusal> {
        let key = (instruction.to_owned(), image_tokens.to_vec());
        // The map is consistent whenever the lock is free, so a lock poisoned by a panic elsewhere
        // does no harm.
        if let Some(ids) = self
            .made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .by_instruction
            .get(&key)
        {
            return Ok(Arc::clone(ids));
        }
        let ids: Arc<[i64]> = self
            .encode(&self.expand(instruction, image_tokens)?)?
            .into();
        let found = ids.iter().filter(|id| **id == self.image_id).count();
        let wanted: usize = image_tokens.iter().sum();
        if found != wanted {
            let reason =
                format!("a prompt has {found} tokens `{IMAGE_PAD}`, its pictures have {wanted}");
            return Err(refuse(&self.path, reason));
        }
        self.made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, Arc::clone(&ids));
        Ok(ids)
    }

    fn expand(&self, instruction: &str, image_tokens: &[usize]) -> Result<String, Refusal> {
        let rendered = self.render(instruction, image_tokens.len())?;
        let mut parts = rendered.split(IMAGE_PAD);
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (part, tokens) in parts.zip(image_tokens) {
            text.push_str(&IMAGE_PAD.repeat(*tokens));
            text.push_str(part);
        }
        Ok(text)
    }
}

/// Reads a tokenizer. The crate panics on some files that are not tokenizers, especially on those
/// that are not even JSON.
fn read_tokenizer(path: &Path) -> Result<Tokenizer, Refusal> {
    let bytes = fs::read(path).map_err(in_file(path))?;
    parse_tokenizer(path, &bytes)
}

fn encode(tokenizer: &Tokenizer, path: &Path, text: &str) -> Result<Vec<i64>, Refusal> {
    let encoding = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        tokenizer.encode_fast(text, true)
    }));
    let encoding = encoding.map_err(|_| refuse(path, "its tokenizer panics at a prompt"))?;
    let encoding = encoding.map_err(|err| refuse(path, err))?;
    Ok(encoding.get_ids().iter().copied().map(i64::from).collect())
}

fn parse_tokenizer(path: &Path, bytes: &[u8]) -> Result<Tokenizer, Refusal> {
    serde_json::from_slice::<IgnoredAny>(bytes).map_err(not_json(path))?;
    let made = panic::catch_unwind(|| Tokenizer::from_bytes(bytes));
    let made = made.map_err(|_| refuse(path, "it is not a tokenizer that can be read"))?;
    made.map_err(|err| refuse(path, err))
}

/// Reads the `pad_token` of a tokenizer configuration: a string, or an object with its `content`.
fn padding(path: &Path) -> Result<String, Refusal> {
    if !path.is_file() {
        return Ok(PADDING.to_owned());
    }
    let file = Json::read(path)?;
    let Some(field) = file.root().get("pad_token")?.given() else {
        return Ok(PADDING.to_owned());
    };
    let text = if field.is_text() {
        field.text()?
    } else {
        field.get("content")?.text()?
    };
    Ok(text.to_owned())
}

/// Checks the image placeholder's id: the network replaces the tokens with this id by pictures, so
/// it must be the tokenizer's.
fn check_image_id(path: &Path, image_id: i64) -> Result<(), Refusal> {
    if !path.is_file() {
        return Ok(());
    }
    let file = Json::read(path)?;
    let field = file.root().get("image_token_id")?;
    if field.is_missing() || field.integer()? == image_id {
        return Ok(());
    }
    Err(field.refuse(&format!(
        "expected {image_id}, the tokenizer's `{IMAGE_PAD}`"
    )))
}

#[cfg(test)]
mod tests {
    use rig::hostile::Target;

    use super::*;

    #[test]
    fn prompts_of_strangers_take_no_more_memory_than_they_may() {
        let mut made = PromptCache::default();
        for number in 0..200 {
            let instruction = format!("{number} {}", "word ".repeat(20_000));
            made.insert((instruction, vec![64, 64]), vec![7; 40_000].into());
            assert!(made.bytes <= REMEMBERED_BYTES);
        }
        let ids = |made: &PromptCache| -> usize {
            made.by_instruction.values().map(|ids| ids.len() * 8).sum()
        };
        assert!(ids(&made) > 0 && ids(&made) <= REMEMBERED_BYTES);
        let before = made.by_instruction.len();
        made.insert(("x".repeat(REMEMBERED_BYTES + 1), vec![]), vec![].into());
        assert_eq!(
            made.by_instruction.len(),
            before,
            "one that is larger than all may be costs no other its place"
        );
    }

    #[test]
    fn hostile_tokenizer() {
        let path = Path::new("tokenizer.json");
        Target::new("tokenizer")
            .longest(8192)
            .one_in(100)
            .run(|input| {
                let tokenizer =
                    parse_tokenizer(path, input).map_err(|err| err.to_string().len())?;
                let encoding = encode(
                    &tokenizer,
                    path,
                    "open the drawer, <|image_pad|> aaaaaaaaaaaaaaaaaaaaaaaaaaaaa! \u{e9}\u{1f600}",
                );
                encoding
                    .map(|ids| ids.len())
                    .map_err(|err| err.to_string().len())
            });
    }
}
