//! Renders the chat template of the backbone, which is Jinja as its repository ships it.
//!
//! A chat template is a program that comes with a checkpoint. Its steps ([`FUEL`]), its depth
//! ([`DEPTH`]) and its output ([`LONGEST`]) are limited, and it loads no other template. Its memory
//! is not limited, because a single step may double a text.

use std::fs;
use std::path::{Path, PathBuf};

use jobs::refusal::Refusal;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::Deserialize;

use crate::error::{in_file, lacks, refuse};
use crate::json::Document;

/// Maximum number of steps of a template; the public Qwen3-VL template takes fewer than a thousand
/// for a prompt.
const FUEL: u64 = 1_000_000;
/// Maximum nesting depth of macros and loops.
const DEPTH: usize = 50;
/// Maximum size of a prompt in bytes, before the placeholders of pictures are repeated.
const LONGEST: usize = 64 << 10;

/// A chat template, which is compiled when it is rendered.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    source: String,
    /// The file that it comes from.
    pub(super) path: PathBuf,
}

/// A `chat_template` in a JSON file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a template, or a list with one named `default`")]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl ChatTemplate {
    /// Reads the template from the files in which transformers looks for it: `chat_template.jinja`,
    /// `chat_template.json`, `tokenizer_config.json`.
    pub(super) fn read(dir: &Path) -> Result<Self, Refusal> {
        let path = dir.join("chat_template.jinja");
        if path.is_file() {
            let source = fs::read_to_string(&path).map_err(in_file(&path))?;
            return Ok(Self { source, path });
        }
        for name in ["chat_template.json", "tokenizer_config.json"] {
            let path = dir.join(name);
            if !path.is_file() {
                continue;
            }
            let file = Document::read(&path)?;
            let source = match file.get(&["chat_template"])? {
                Some(Templates::One(source)) => Some(source),
                Some(Templates::Named(named)) => {
                    let mut named = named.into_iter();
                    let default = named.find(|named| named.name == "default");
                    default.map(|named| named.template)
                }
                None => continue,
            };
            let wanted = "expected a list with a template named `default`";
            let source = source.ok_or_else(|| file.refuse(&["chat_template"], wanted))?;
            return Ok(Self { source, path });
        }
        let wanted = "chat template (`chat_template.jinja`, `chat_template.json` or in `tokenizer_config.json`)";
        Err(lacks(dir, wanted))
    }

    /// Renders the prompt of one user turn: `images` placeholders, then `text`.
    pub(super) fn render(&self, images: usize, text: &str) -> Result<String, Refusal> {
        let image = context! { type => "image", image => "" };
        let mut content = vec![image; images];
        content.push(context! { type => "text", text => text });
        let messages = vec![context! { role => "user", content => content }];
        let context = context! { messages => messages, add_generation_prompt => false };
        self.evaluate(context).map_err(|err| match err.kind() {
            ErrorKind::WriteFailure => refuse(
                &self.path,
                format_args!("it writes more than {LONGEST} bytes"),
            ),
            _ => refuse(&self.path, err),
        })
    }

    fn evaluate(&self, context: Value) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(DEPTH);
        // transformers renders with these flags.
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?;
        environment.set_syntax(syntax);
        let raise = |reason: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, reason))
        };
        environment.add_function("raise_exception", raise);
        let template = environment.template_from_named_str("chat", &self.source)?;
        let mut rendered = vec![0; LONGEST];
        let mut rest = &mut rendered[..];
        template.render_captured_to(context, &mut rest)?;
        let written = LONGEST - rest.len();
        rendered.truncate(written);
        Ok(String::from_utf8_lossy(&rendered).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of the public Qwen3-VL template that handles a user turn, including the branches
    /// that it does not take.
    const PUBLIC: &str = include_str!("../tests/chat_template.jinja");

    fn render(source: &str, images: usize, text: &str) -> Result<String, Refusal> {
        let (source, path) = (source.to_owned(), "chat_template.jinja".into());
        ChatTemplate { source, path }.render(images, text)
    }

    #[test]
    fn a_user_turn_is_images_then_text() {
        assert_eq!(
            render(PUBLIC, 2, "open drawer").unwrap(),
            "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|><|vision_start|><|image_pad|><|vision_end|>\
             open drawer<|im_end|>\n"
        );
    }

    #[test]
    fn a_template_comes_from_the_first_file_that_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let read = || ChatTemplate::read(dir.path());
        assert!(
            read()
                .unwrap_err()
                .to_string()
                .contains("has no chat template")
        );
        let list = r#"{"chat_template": [{"name": "rag", "template": "a"}, {"name": "default", "template": "b"}]}"#;
        fs::write(dir.path().join("tokenizer_config.json"), list).unwrap();
        assert_eq!(read().unwrap().render(0, "").unwrap(), "b");
        fs::write(
            dir.path().join("chat_template.json"),
            r#"{"chat_template": "c"}"#,
        )
        .unwrap();
        assert_eq!(read().unwrap().render(0, "").unwrap(), "c");
        fs::write(dir.path().join("chat_template.jinja"), "d").unwrap();
        assert_eq!(read().unwrap().render(0, "").unwrap(), "d");
    }

    /// Returns the template of some lines, of which `@60 x` is 60 times `x`.
    fn unfolded(lines: &str) -> String {
        let unfold = |line: &str| {
            let repeated = line.strip_prefix('@').and_then(|it| it.split_once(' '));
            match repeated {
                Some((times, part)) => part.repeat(times.parse().unwrap()),
                None => line.to_owned(),
            }
        };
        lines.lines().map(unfold).collect()
    }

    #[test]
    fn a_template_that_fails_never_ends_writes_too_much_or_goes_too_deep_is_refused() {
        let cases = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/gr00t/processor/template/refusals.txt"
        );
        rig::cases::check(cases, |lines| {
            let rendered = render(&unfolded(lines), 1, "open the drawer");
            rendered.map(|text| text.len()).unwrap_err().to_string()
        });
    }

    #[test]
    fn what_templates_use_is_there() {
        let cases = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/gr00t/processor/template/used.txt"
        );
        rig::cases::check(cases, |source| render(source, 1, "open <it>").unwrap());
    }

    #[test]
    fn an_instruction_is_no_template() {
        let (template, instruction) = ("{{ messages[0].content[0].text }}", "{{ 1 + 1 }} <b>");
        assert_eq!(render(template, 0, instruction).unwrap(), instruction);
    }
}
