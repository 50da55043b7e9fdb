//! Converts instructions to token ids.
//!
//! ```text
//! instruction ─► formalize ─► chat template ─► one placeholder per image token ─► tokenizer ─► ids
//! ```
//!
//! The ids of special tokens come from the files, because a small vocabulary has different ones.

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jobs::refusal::Refusal;
use regex::Regex;
use serde::Deserialize;

use crate::cache::Cache;
use crate::error::{input, lacks, refuse};
use crate::gr00t::processor::template::ChatTemplate;
use crate::json::Document;
use crate::tokens::TextTokenizer;

/// The template's placeholder for a picture; it is repeated for each of the picture's tokens.
const IMAGE_PAD: &str = "<|image_pad|>";
/// The padding token, unless `tokenizer_config.json` says otherwise.
const PADDING: &str = "<|endoftext|>";
/// Maximum number of cached prompts; an evaluation has a few instructions.
const REMEMBERED: u64 = 1024;
/// Maximum size of cached prompts in bytes, because clients of a server decide how long they are.
/// An instruction with the tokens of two pictures has 2 kB.
const REMEMBERED_BYTES: u64 = 16 << 20;

/// Matches characters that are neither word characters (`str.isalnum` or underscore) nor white
/// space (`str.isspace`) in Python's `re`. Python's white space is that of Unicode plus the four
/// separators from U+001C.
static PUNCTUATION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[^\p{L}\p{N}_\s\x1c-\x1f]").expect("the pattern is a constant that the tests use")
});

/// An instruction, and the number of tokens of each picture in the order of the prompt.
type InstructionKey = (String, Vec<usize>);

/// Builds prompts and caches them.
#[derive(Debug)]
pub struct Prompts {
    template: ChatTemplate,
    tokenizer: TextTokenizer,
    image_id: i64,
    /// The id that pads prompts on the left.
    pub padding_id: i64,
    formalize: bool,
    made: Mutex<Cache<InstructionKey, Arc<[i64]>>>,
}

/// Returns the size of a cached prompt.
fn prompt_bytes(instruction: &str, pictures: &[usize], ids: &[i64]) -> u64 {
    (instruction.len() + size_of_val(pictures) + size_of_val(ids)) as u64
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
        let tokenizer = TextTokenizer::read(&path)?;
        let padding = padding(&dir.join("tokenizer_config.json"))?;
        let (image_id, padding_id) = (tokenizer.id(IMAGE_PAD)?, tokenizer.id(&padding)?);
        check_image_id(&dir.join("config.json"), image_id)?;
        let prompts = Self {
            template: ChatTemplate::read(dir)?,
            tokenizer,
            image_id,
            padding_id,
            formalize,
            made: Mutex::new(Cache::new(REMEMBERED_BYTES)),
        };
        prompts.render("", 2)?;
        Ok(prompts)
    }

    /// Returns the prompt as text, with one placeholder per picture.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the template fails, or if the instruction itself contains a
    /// placeholder.
    pub fn render(&self, instruction: &str, images: usize) -> Result<String, Refusal> {
        let instruction = match self.formalize {
            true => formalize(instruction),
            false => instruction.to_owned(),
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
        Err(refuse(&self.template.path, reason))
    }

    /// Returns the token ids of the prompt for an instruction and for pictures of `image_tokens`
    /// tokens each.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the template or the tokenizer fails, or if the instruction
    /// itself contains a placeholder.
    pub fn tokens(&self, instruction: &str, image_tokens: &[usize]) -> Result<Arc<[i64]>, Refusal> {
        let key = (instruction.to_owned(), image_tokens.to_vec());
        // The cache is consistent whenever the lock is free, so a lock that is poisoned by a panic
        // elsewhere does no harm.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.get_or_try(key, || {
            let text = self.expand(instruction, image_tokens)?;
            let ids = self.tokenizer.encode(&text)?;
            let found = ids.iter().filter(|id| **id == self.image_id).count();
            let wanted: usize = image_tokens.iter().sum();
            if found != wanted {
                let reason = format!(
                    "a prompt has {found} tokens `{IMAGE_PAD}`, its pictures have {wanted}"
                );
                return Err(refuse(&self.tokenizer.path, reason));
            }
            let size = prompt_bytes(instruction, image_tokens, &ids);
            Ok((ids.into(), size.max(REMEMBERED_BYTES / REMEMBERED)))
        })
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

/// Returns the text in lower case, without the characters that are neither word characters nor
/// white space.
fn formalize(text: &str) -> String {
    PUNCTUATION
        .replace_all(&text.to_lowercase(), "")
        .into_owned()
}

/// The `pad_token` of a tokenizer configuration.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a string, or an object with a string `content`")]
enum PadToken {
    Plain(String),
    Added { content: String },
}

fn padding(path: &Path) -> Result<String, Refusal> {
    let found = match path.is_file() {
        true => Document::read(path)?.get(&["pad_token"])?,
        false => None,
    };
    Ok(match found {
        Some(PadToken::Plain(token) | PadToken::Added { content: token }) => token,
        None => PADDING.to_owned(),
    })
}

/// Checks the image placeholder's id: the network replaces the tokens with this id by pictures, so
/// it must be the tokenizer's.
fn check_image_id(path: &Path, image_id: i64) -> Result<(), Refusal> {
    if !path.is_file() {
        return Ok(());
    }
    let (file, names) = (Document::read(path)?, ["image_token_id"]);
    match file.get::<Option<i64>>(&names)? {
        Some(id) if id != image_id => {
            let wanted = format_args!("expected {image_id}, the tokenizer's `{IMAGE_PAD}`");
            Err(file.refuse(&names, wanted))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_spaces_stay() {
        assert_eq!(
            formalize("Move  the 2nd café-mug!\n"),
            "move  the 2nd cafémug\n"
        );
        assert_eq!(formalize("½ snake_case ² 中文"), "½ snake_case ² 中文");
    }

    #[test]
    fn a_mark_that_lower_case_brings_is_no_word_character() {
        assert_eq!(formalize("İ ΑΣ <|image_pad|>"), "i ας image_pad");
    }

    #[test]
    fn all_that_a_stranger_makes_long_counts() {
        assert_eq!(
            prompt_bytes(&"x".repeat(1000), &[64; 3], &[7; 500]),
            1000 + 3 * 8 + 500 * 8
        );
    }
}
