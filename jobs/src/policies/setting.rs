//! A setting of a policy or an environment: its name, its values, and what depends on it.

use std::borrow::Cow;

use serde_json::{Value, json};

/// Largest edge of a picture in pixels, and most actions of a chunk or tokens of a text.
const MOST: u64 = 4096;

/// Longest duration in seconds: a day.
const MAX_SECONDS: f64 = 86400.0;

/// A setting: a field of `policy_config_dict`, or an argument of an environment in
/// `arena_env_args`.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name of the field.
    pub name: &'static str,
    /// The values that it may have.
    pub kind: ValueKind,
    /// The default, as documentation says it; empty if there is none.
    pub default: &'static str,
    /// What is needed, as a clause, if the setting must be given.
    pub required: Option<&'static str>,
    /// Whether it says only where a policy is or how long it is waited for, so that results do
    /// not depend on it.
    pub is_of_place: bool,
    /// What it means, in one line.
    pub about: &'static str,
}

impl Setting {
    /// Creates a setting that may be missing.
    pub(crate) const fn new(
        name: &'static str,
        kind: ValueKind,
        default: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            default,
            required: None,
            is_of_place: false,
            about,
        }
    }

    /// Creates a setting that must be given; `wanted` is the clause of the error.
    pub(crate) const fn required(
        name: &'static str,
        kind: ValueKind,
        wanted: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            required: Some(wanted),
            ..Self::new(name, kind, "", about)
        }
    }

    /// Creates a setting of Arena that is accepted and has no effect.
    pub(super) const fn unused(name: &'static str, about: &'static str) -> Self {
        Self::new(name, ValueKind::Unused, "", about)
    }

    /// Makes it a setting on which no result depends.
    pub(super) const fn of_place(self) -> Self {
        Self {
            is_of_place: true,
            ..self
        }
    }
}

/// The values that a setting may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// A string.
    Text,
    /// The path of a file or folder.
    Path(PathTo),
    /// The name of a Python callable, see [`FactoryName`].
    Factory,
    /// A string or a list of strings.
    Texts,
    /// `true` or `false`.
    Flag,
    /// A whole number from 0.
    Seed,
    /// A whole number between two bounds, inclusive.
    Whole(u64, u64),
    /// A whole number above 0 that fits into 32 bits.
    Count,
    /// A number between two bounds, inclusive.
    Number(f64, f64),
    /// A duration in seconds, up to a day.
    Seconds,
    /// A TCP port.
    Port,
    /// Height and width of pictures in pixels; Arena's files add the number of colour channels.
    Edges,
    /// A map with string keys; messages call it by this word.
    Map(&'static str),
    /// A map with string keys, or the path of a file with one.
    MapOrFile,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Anything: the setting has no effect.
    Unused,
}

/// What a path leads to, as far as the launcher looks before ranks start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathTo {
    /// A file that must exist.
    File,
    /// A `.pt2` package that must exist and that this machine can run.
    Package,
    /// The folder of a checkpoint, or the name of a downloaded model.
    Checkpoint,
    /// A Python interpreter: a name in `PATH`, a path, or the folder of a venv.
    Interpreter,
    /// Something that may not exist yet, because an earlier job may make it, or that only the rank
    /// looks for.
    Anything,
}

/// The name of a Python callable or class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactoryName<'a> {
    /// `path/to/file.py:factory`.
    InFile {
        /// The file, relative to the working directory.
        file: &'a str,
        /// Name of the callable in it.
        factory: &'a str,
    },
    /// `package.module:factory`.
    InModule {
        /// Dotted name of the module.
        module: &'a str,
        /// Name of the callable in it.
        factory: &'a str,
    },
}

impl<'a> FactoryName<'a> {
    /// Reads a name; returns `None` if it has neither form.
    pub fn of(name: &'a str) -> Option<Self> {
        let (place, factory) = name.rsplit_once(':')?;
        if !factory.split('.').all(is_identifier) {
            return None;
        }
        if place.len() > ".py".len() && place.ends_with(".py") {
            return Some(Self::InFile {
                file: place,
                factory,
            });
        }
        let module = place;
        module
            .split('.')
            .all(is_identifier)
            .then_some(Self::InModule { module, factory })
    }
}

fn is_identifier(part: &str) -> bool {
    let mut letters = part.chars();
    letters
        .next()
        .is_some_and(|first| first.is_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_alphanumeric() || letter == '_')
}

/// A whole number of things: actions, steps, tokens.
pub(super) const COUNT: ValueKind = ValueKind::Whole(1, MOST);

impl ValueKind {
    /// Returns whether this is such a value.
    pub fn accepts(self, value: &Value) -> bool {
        match self {
            Self::Text | Self::Path(_) => value.is_string(),
            Self::Factory => value
                .as_str()
                .is_some_and(|name| FactoryName::of(name).is_some()),
            Self::Texts => match value {
                Value::Array(items) => items.iter().all(Value::is_string),
                other => other.is_string(),
            },
            Self::Flag => value.is_boolean(),
            Self::Seed => value.is_u64(),
            Self::Whole(least, most) => is_whole(value, least, most),
            Self::Count => is_whole(value, 1, u32::MAX.into()),
            Self::Number(least, most) => is_number(value, least, most),
            Self::Seconds => is_number(value, 0.0, MAX_SECONDS),
            Self::Port => is_whole(value, 1, u16::MAX.into()),
            Self::Edges => match value.as_array().map(Vec::as_slice) {
                Some([height, width]) => [height, width].iter().all(|edge| is_whole(edge, 1, MOST)),
                Some([height, width, channels]) => {
                    channels == 3 && [height, width].iter().all(|edge| is_whole(edge, 1, MOST))
                }
                _ => false,
            },
            Self::Map(_) => value.is_object(),
            Self::MapOrFile => value.is_object() || value.is_string(),
            Self::OneOf(words) => words.iter().any(|word| value == word),
            Self::Unused => true,
        }
    }

    /// Describes the values for errors, as a clause.
    pub fn wanted(self) -> Cow<'static, str> {
        match self {
            Self::Text => "expected a string".into(),
            Self::Path(_) => "expected a path".into(),
            Self::Factory => "expected `file.py:factory` or `package.module:factory`".into(),
            Self::Texts => "expected a string or a list of strings".into(),
            Self::Flag => "expected true or false".into(),
            Self::Seed => "expected a whole number from 0".into(),
            Self::Whole(least, most) => {
                format!("expected a whole number from {least} to {most}").into()
            }
            Self::Count => "expected a whole number above 0".into(),
            Self::Number(least, most) => format!("expected a number from {least} to {most}").into(),
            Self::Seconds => format!("expected a number of seconds from 0 to {MAX_SECONDS}").into(),
            Self::Port => format!("expected a port from 1 to {}", u16::MAX).into(),
            Self::Edges => format!("expected height and width from 1 to {MOST}").into(),
            Self::Map(word) => {
                let article = if word.starts_with('o') { "an" } else { "a" };
                format!("expected {article} {word}").into()
            }
            Self::MapOrFile => "expected an object or the path of a YAML or JSON file".into(),
            Self::OneOf(words) => format!("expected one of {}", words.join(", ")).into(),
            Self::Unused => "anything is accepted".into(),
        }
    }

    /// Returns a value of this kind, for tests and documentation.
    pub fn example(self) -> Value {
        match self {
            Self::Text => json!("text"),
            Self::Path(_) => json!("/nowhere"),
            Self::Factory => json!("package.module:factory"),
            Self::Texts => json!(["text"]),
            Self::Flag => json!(true),
            Self::Seed | Self::Port | Self::Count => json!(1),
            Self::Whole(least, _) => json!(least.max(1)),
            Self::Number(_, most) => json!(most),
            Self::Seconds => json!(1.5),
            Self::Edges => json!([2, 3]),
            Self::Map(_) | Self::MapOrFile => json!({"key": "value"}),
            Self::OneOf(words) => words.first().copied().into(),
            Self::Unused => Value::Null,
        }
    }
}

fn is_whole(value: &Value, least: u64, most: u64) -> bool {
    value
        .as_u64()
        .is_some_and(|number| (least..=most).contains(&number))
}

fn is_number(value: &Value, least: f64, most: f64) -> bool {
    value
        .as_f64()
        .is_some_and(|number| (least..=most).contains(&number))
}
