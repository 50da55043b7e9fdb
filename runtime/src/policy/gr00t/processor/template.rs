//! The chat template of the backbone: Jinja, as its repository ships it.

use std::fs;
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, context};

use super::ProcessorError;
use super::field::{Field, Json};

/// Steps that a template may take; the public Qwen3-VL template takes under a thousand for a prompt.
const FUEL: u64 = 1_000_000;

/// A chat template, compiled.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    environment: Environment<'static>,
    path: std::path::PathBuf,
}

impl ChatTemplate {
    /// Reads the template where transformers looks for it: `chat_template.jinja`, `chat_template.json`,
    /// `tokenizer_config.json`.
    pub(super) fn read(dir: &Path) -> Result<Self, ProcessorError> {
        let plain = dir.join("chat_template.jinja");
        if plain.is_file() {
            let source = fs::read_to_string(&plain).map_err(|err| ProcessorError::Io { path: plain.clone(), err })?;
            return Self::compile(&plain, source);
        }
        for name in ["chat_template.json", "tokenizer_config.json"] {
            let path = dir.join(name);
            if !path.is_file() {
                continue;
            }
            let file = Json::read(&path)?;
            if let Some(field) = file.root().get("chat_template")?.given() {
                return Self::compile(&path, default_template(&field)?.to_owned());
            }
        }
        let wanted = "chat template (`chat_template.jinja`, `chat_template.json` or in `tokenizer_config.json`)";
        Err(ProcessorError::NoFile { dir: dir.to_owned(), wanted: wanted.to_owned() })
    }

    fn compile(path: &Path, source: String) -> Result<Self, ProcessorError> {
        let mut environment = Environment::new();
        // The flags that transformers renders with.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|err| ProcessorError::text(path, err))?);
        environment.set_fuel(Some(FUEL));
        environment.add_function("raise_exception", |text: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, text))
        });
        environment.add_template_owned("chat", source).map_err(|err| ProcessorError::text(path, err))?;
        Ok(Self { environment, path: path.to_owned() })
    }

    /// The prompt of one user turn: `images` placeholders, then `text`.
    pub(super) fn render(&self, images: usize, text: &str) -> Result<String, ProcessorError> {
        let image = context! { type => "image", image => "" };
        let mut content = vec![image; images];
        content.push(context! { type => "text", text => text });
        let messages = vec![context! { role => "user", content => content }];
        let template = self.environment.get_template("chat").map_err(|err| ProcessorError::text(&self.path, err))?;
        let rendered = template.render(context! { messages => messages, add_generation_prompt => false });
        rendered.map_err(|err| ProcessorError::text(&self.path, err))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The template, or the one named `default` in a list of named ones.
fn default_template<'a>(field: &Field<'a>) -> Result<&'a str, ProcessorError> {
    if field.is_text() {
        return field.text();
    }
    for entry in field.items()? {
        if entry.get("name")?.text()? == "default" {
            return entry.get("template")?.text();
        }
    }
    Err(field.refuse("a template or a list with one named `default` is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape of the public Qwen3-VL template as far as a user turn goes, with the branches that it does not take.
    const PUBLIC: &str = include_str!("tests/chat_template.jinja");

    fn compile(source: &str) -> Result<ChatTemplate, ProcessorError> {
        ChatTemplate::compile(Path::new("chat_template.jinja"), source.to_owned())
    }

    #[test]
    fn a_user_turn_is_images_then_text() {
        assert_eq!(
            compile(PUBLIC).unwrap().render(2, "open drawer").unwrap(),
            "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|><|vision_start|><|image_pad|><|vision_end|>\
             open drawer<|im_end|>\n"
        );
    }

    #[test]
    fn a_template_comes_from_the_first_file_that_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let read = || ChatTemplate::read(dir.path());
        assert!(read().unwrap_err().to_string().contains("has no chat template"));
        let list = r#"{"chat_template": [{"name": "rag", "template": "a"}, {"name": "default", "template": "b"}]}"#;
        fs::write(dir.path().join("tokenizer_config.json"), list).unwrap();
        assert_eq!(read().unwrap().render(0, "").unwrap(), "b");
        fs::write(dir.path().join("chat_template.json"), r#"{"chat_template": "c"}"#).unwrap();
        assert_eq!(read().unwrap().render(0, "").unwrap(), "c");
        fs::write(dir.path().join("chat_template.jinja"), "d").unwrap();
        assert_eq!(read().unwrap().render(0, "").unwrap(), "d");
    }

    #[test]
    fn a_template_that_fails_or_never_ends_is_refused_by_file() {
        for source in [
            "{{ raise_exception('no') }}",
            "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
        ] {
            let text = compile(source).unwrap().render(1, "x").unwrap_err().to_string();
            assert!(text.starts_with("`chat_template.jinja`: "), "{text}");
        }
        assert!(compile("{% for %}").is_err());
    }

    #[test]
    fn an_instruction_is_no_template() {
        let template = compile("{{ messages[0].content[0].text }}").unwrap();
        assert_eq!(template.render(0, "{{ 1 + 1 }} <b>").unwrap(), "{{ 1 + 1 }} <b>");
    }
}
