//! Kinds of values that several settings have.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Largest edge of a picture in pixels, and most actions of a chunk or tokens of a text.
pub const MOST: usize = 4096;

/// Longest duration in seconds: a day.
const MAX_SECONDS: f64 = 86400.0;

/// Gives a kind its schema.
macro_rules! kind {
    ($kind:ty, $schema:tt) => {
        impl JsonSchema for $kind {
            fn schema_name() -> Cow<'static, str> {
                stringify!($kind).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

/// Returns the default of a setting that is a number: `#[serde(default = "number::<8, Count>")]`.
pub fn number<const N: u16, T: From<u16>>() -> T {
    N.into()
}

/// Returns the default of a setting that is on unless it is switched off.
pub fn yes() -> bool {
    true
}

/// A number of actions, steps or tokens, from 1 to [`MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Count(pub usize);

impl From<u16> for Count {
    fn from(count: u16) -> Self {
        Self(count.into())
    }
}

impl From<Count> for usize {
    fn from(count: Count) -> Self {
        count.0
    }
}

kind!(Count, {"type": "integer", "minimum": 1, "maximum": MOST});

/// A TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Port(pub u16);

kind!(Port, {"type": "integer", "minimum": 1, "maximum": u16::MAX,
             "wanted": format!("a port from 1 to {}", u16::MAX)});

/// A duration in seconds, up to a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

kind!(Seconds, {"type": "number", "minimum": 0, "maximum": MAX_SECONDS,
                "wanted": format!("a number of seconds from 0 to {MAX_SECONDS}")});

impl From<u16> for Seconds {
    fn from(seconds: u16) -> Self {
        Self(Duration::from_secs(seconds.into()))
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(from)?;
        let duration = Duration::try_from_secs_f64(seconds);
        duration.map(Self).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Seconds {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.0.as_secs_f64())
    }
}

/// Height and width of pictures in pixels; Arena's files add the number of colour channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Edges(pub [usize; 2]);

kind!(Edges, {
    "type": "array", "minItems": 2, "maxItems": 3,
    "prefixItems": [{"type": "integer", "minimum": 1, "maximum": MOST},
                    {"type": "integer", "minimum": 1, "maximum": MOST}, {"const": 3}],
    "wanted": format!("height and width from 1 to {MOST}"),
});

impl<'de> Deserialize<'de> for Edges {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Vec::deserialize(from)?[..] {
            [height, width] | [height, width, 3] => Ok(Self([height, width])),
            _ => Err(serde::de::Error::custom("expected height and width")),
        }
    }
}

/// A string or a list of strings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OneOrMany(#[serde(deserialize_with = "one_or_many")] pub Vec<String>);

kind!(OneOrMany, {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
                  "wanted": "a string or a list of strings"});

fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(match TextOrTexts::deserialize(from)? {
        TextOrTexts::Text(text) => vec![text],
        TextOrTexts::Texts(texts) => texts,
    })
}

/// The two forms of a list of strings.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum TextOrTexts {
    Text(String),
    Texts(Vec<String>),
}

/// An object, or the path of a file with one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MapOrFile {
    /// The object.
    Map(Map<String, Value>),
    /// Path of a YAML or JSON file.
    File(PathBuf),
}

kind!(MapOrFile, {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": true}],
                  "wanted": "an object or the path of a YAML or JSON file"});

/// Any value, of a setting that has no effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ignored(Value);

kind!(Ignored, {"unused": true, "wanted": "anything"});

/// The name of a Python callable or class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PyName {
    /// `path/to/file.py:factory`.
    InFile {
        /// The file, relative to the working directory.
        file: PathBuf,
        /// Name of the callable in it.
        factory: String,
    },
    /// `package.module:factory`.
    InModule {
        /// Dotted name of the module.
        module: String,
        /// Name of the callable in it.
        factory: String,
    },
}

/// The two forms of a [`PyName`].
pub const PY_NAME: &str = "`file.py:factory` or `package.module:factory`";

kind!(PyName, {"type": "string", "format": "python-callable", "wanted": PY_NAME});

impl PyName {
    /// Reads a name; returns `None` if it has neither form.
    pub fn of(name: &str) -> Option<Self> {
        let (place, factory) = name.rsplit_once(':')?;
        if !factory.split('.').all(is_identifier) {
            return None;
        }
        let factory = factory.to_owned();
        if place.len() > ".py".len() && place.ends_with(".py") {
            let file = PathBuf::from(place);
            return Some(Self::InFile { file, factory });
        }
        let module = place.to_owned();
        let is_module = module.split('.').all(is_identifier);
        is_module.then_some(Self::InModule { module, factory })
    }

    /// Returns the file, unless it is in a module that only the interpreter finds.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::InFile { file, .. } => Some(file),
            Self::InModule { .. } => None,
        }
    }
}

fn is_identifier(part: &str) -> bool {
    let mut letters = part.chars();
    letters
        .next()
        .is_some_and(|first| first.is_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_alphanumeric() || letter == '_')
}

impl fmt::Display for PyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFile { file, factory } => write!(f, "{}:{factory}", file.display()),
            Self::InModule { module, factory } => write!(f, "{module}:{factory}"),
        }
    }
}

impl TryFrom<String> for PyName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::of(&name).ok_or_else(|| format!("expected {PY_NAME}"))
    }
}

impl From<PyName> for String {
    fn from(name: PyName) -> Self {
        name.to_string()
    }
}

/// Returns whether a value has the format that its kind wants, if that is one of ours.
pub(super) fn has_format(schema: &Value, value: &Value) -> bool {
    !is_callable(schema) || value.as_str().and_then(PyName::of).is_some()
}

/// Returns whether a schema is that of a [`PyName`].
pub(super) fn is_callable(schema: &Value) -> bool {
    schema["format"] == "python-callable"
}

/// Joins the lines of a doc comment.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
