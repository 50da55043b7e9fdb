//! Renders the chat template of the backbone, which is Jinja as its repository ships it.
//!
//! A chat template is a program that comes with a checkpoint, so its resources are limited: steps
//! ([`FUEL`]), bytes (`budget`), output of its own text ([`LITERALS`]), stack ([`STACK`]) and
//! source length ([`LONGEST`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, thread};

use jobs::refusal::Refusal;
use minijinja::machinery::{self, CodeGenerator, Instruction, Instructions, Token};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, Value, context};

use crate::error::{in_file, lacks};
use crate::processor::field::{Field, Json};
use budget::{RenderBudget, refuse};

mod budget;
mod builtins;
mod operators;

/// Maximum number of steps of a template; the public Qwen3-VL template takes fewer than a thousand
/// for a prompt.
const FUEL: u64 = 1_000_000;
/// Maximum number of bytes of its own text that a template may write: it limits the steps to as
/// many as fit if each wrote the longest piece.
const LITERALS: u64 = 64 << 20;
/// Maximum size of a template in bytes; the longest public ones, with tools, have twenty thousand.
const LONGEST: usize = 64 << 10;
/// Size of the stack in bytes. The compiler takes a few hundred bytes for each operator of an
/// expression, and a template may have as many operators as bytes. The system provides the pages
/// only when they are touched.
const STACK: usize = 256 << 20;
/// Maximum nesting depth of macros and loops.
const DEPTH: usize = 50;

/// A compiled chat template.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    source: String,
    path: PathBuf,
}

impl ChatTemplate {
    /// Reads the template from the files in which transformers looks for it: `chat_template.jinja`,
    /// `chat_template.json`, `tokenizer_config.json`.
    pub(super) fn read(dir: &Path) -> Result<Self, Refusal> {
        let plain = dir.join("chat_template.jinja");
        if plain.is_file() {
            let source = fs::read_to_string(&plain).map_err(in_file(&plain))?;
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
        Err(lacks(dir, wanted))
    }

    fn compile(path: &Path, source: String) -> Result<Self, Refusal> {
        let template = Self {
            source,
            path: path.to_owned(),
        };
        template.apart(|| template.instructions().map(drop))?;
        Ok(template)
    }

    /// Renders the prompt of one user turn: `images` placeholders, then `text`.
    pub(super) fn render(&self, images: usize, text: &str) -> Result<String, Refusal> {
        let image = context! { type => "image", image => "" };
        let mut content = vec![image; images];
        content.push(context! { type => "text", text => text });
        let messages = vec![context! { role => "user", content => content }];
        let context = context! { messages => messages, add_generation_prompt => false };
        self.apart(|| self.evaluate(context))
    }

    /// Runs `work` in a thread whose stack is large enough for any template.
    fn apart<T: Send>(&self, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Refusal> {
        let told = |reason: String| crate::error::refuse(&self.path, reason);
        thread::scope(|scope| {
            let thread = thread::Builder::new()
                .name("template".to_owned())
                .stack_size(STACK);
            let thread = thread.spawn_scoped(scope, || work().map_err(|err| err.to_string()));
            let thread =
                thread.map_err(|err| told(format!("cannot start a thread for it: {err}")))?;
            thread
                .join()
                .map_err(|_| told("the template engine panicked".to_owned()))?
                .map_err(told)
        })
    }

    fn instructions(&self) -> Result<Instructions<'_>, Error> {
        if self.source.len() > LONGEST {
            let found = self.source.len();
            return Err(refuse(format!(
                "the template has {found} bytes, expected at most {LONGEST}"
            )));
        }
        // transformers renders with these flags.
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?;
        refuse_repeated_text(&self.source, &syntax)?;
        let parsed = machinery::parse(&self.source, "chat", syntax)?;
        let mut generator = CodeGenerator::new("chat", &self.source);
        generator.compile_stmt(&parsed);
        let (mut instructions, _) = generator.finish();
        operators::replace(&mut instructions)?;
        Ok(instructions)
    }

    fn evaluate(&self, context: Value) -> Result<String, Error> {
        let instructions = self.instructions()?;
        let budget = RenderBudget::default();
        let mut environment = Environment::empty();
        environment.set_fuel(Some((LITERALS / longest_literal(&instructions)).min(FUEL)));
        environment.set_recursion_limit(DEPTH);
        builtins::add(&mut environment, &budget);
        operators::add(&mut environment, &budget);
        environment.set_formatter(move |out, state, value| {
            budget.charge(value)?;
            minijinja::escape_formatter(out, state, value)
        });
        let (mut rendered, blocks) = (String::new(), BTreeMap::new());
        let mut output = machinery::make_string_output(&mut rendered);
        machinery::eval(
            &environment,
            &instructions,
            context,
            &blocks,
            &mut output,
            AutoEscape::None,
        )?;
        Ok(rendered)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Refuses literal text or a list that is multiplied: the compiler evaluates constant expressions
/// before anything is counted.
fn refuse_repeated_text(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    let mut before_is_value = false;
    let mut after_times = false;
    for token in machinery::tokenize(source, false, syntax.clone()) {
        let (token, _) = token?;
        let is_text = matches!(token, Token::Str(_) | Token::String(_));
        let opens = is_text
            || matches!(
                token,
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen
            );
        if (matches!(token, Token::Mul) && before_is_value) || (after_times && opens) {
            return Err(refuse(
                "only numbers are multiplied, not text, lists or what is in parentheses",
            ));
        }
        after_times = matches!(token, Token::Mul);
        before_is_value = is_text
            || matches!(
                token,
                Token::ParenClose | Token::BracketClose | Token::BraceClose
            );
    }
    Ok(())
}

/// Returns the number of bytes of the longest text that one step writes, at least 1.
fn longest_literal(instructions: &Instructions<'_>) -> u64 {
    let raw = |instruction: &Instruction<'_>| match instruction {
        Instruction::EmitRaw(text) => text.len() as u64,
        _ => 0,
    };
    (0..)
        .map_while(|index| instructions.get(index))
        .map(raw)
        .fold(1, u64::max)
}

/// Returns the template, or the one named `default` in a list of named ones.
fn default_template<'a>(field: &Field<'a>) -> Result<&'a str, Refusal> {
    if field.is_text() {
        return field.text();
    }
    for entry in field.items()? {
        if entry.get("name")?.text()? == "default" {
            return entry.get("template")?.text();
        }
    }
    Err(field.refuse("expected a template or a list with one named `default`"))
}

#[cfg(test)]
mod tests {
    use rig::hostile::Target;

    use super::*;

    /// The part of the public Qwen3-VL template that handles a user turn, including the branches
    /// that it does not take.
    const PUBLIC: &str = include_str!("../tests/chat_template.jinja");

    fn compile(source: &str) -> Result<ChatTemplate, Refusal> {
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
    fn a_template_that_fails_never_ends_makes_too_much_or_goes_too_deep_is_refused() {
        let before = peak();
        let cases = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/processor/template/refusals.txt"
        );
        rig::cases::check(cases, |lines| {
            let rendered = compile(&unfolded(lines))
                .and_then(|template| template.render(1, "open the drawer"));
            let text = rendered.map(|text| text.len()).unwrap_err().to_string();
            assert!(text.starts_with("`chat_template.jinja`: ") && text.len() < 1000);
            text
        });
        // A template without limits would have taken all memory. Other tests take some, too.
        assert!(peak() - before < 1 << 30, "{} bytes", peak() - before);
    }

    #[test]
    fn a_long_chain_ends() {
        for link in ["+1", ".a", "|e"] {
            let source = format!("{{{{ x{} }}}}", link.repeat(10_000));
            let _ = compile(&source).and_then(|template| template.render(1, "x"));
        }
    }

    #[test]
    fn what_templates_use_is_there() {
        let cases = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/processor/template/used.txt"
        );
        rig::cases::check(cases, |source| {
            compile(source).unwrap().render(1, "open <it>").unwrap()
        });
    }

    #[test]
    fn hostile_template() {
        Target::new("template").one_in(100).run(|input| {
            let template =
                compile(&String::from_utf8_lossy(input)).map_err(|err| err.to_string().len())?;
            template
                .render(1, "open the drawer")
                .map(|text| text.len() % 64)
                .map_err(|err| err.to_string().len())
        });
    }

    /// Returns the peak memory of this process in bytes.
    fn peak() -> u64 {
        let text = fs::read_to_string("/proc/self/status").unwrap();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() << 10
    }

    #[test]
    fn an_instruction_is_no_template() {
        let template = compile("{{ messages[0].content[0].text }}").unwrap();
        let instruction = "{{ 1 + 1 }} <b>";
        assert_eq!(template.render(0, instruction).unwrap(), instruction);
    }
}
