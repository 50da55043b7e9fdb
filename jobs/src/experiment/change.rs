//! `shared.<path>=<value>` and `runs.<name>.<path>=<value>`: what the command line changes in an
//! Experiment; and `<path>=<value>`, what `--set` changes in a configuration of RLinf.
//!
//! Values are in Hydra's grammar, which is not that of YAML:
//!
//! ```text
//! 7  -1.5  true  null       numbers, bools and null; `yes` and `on` are texts
//! Pick it up                a text, up to the end, or up to `,` `]` `}` inside brackets
//! 'say \'hi\''  "a, b"      a quoted text
//! [a,b]  {k:v,l:[1]}        a list, a mapping
//! (nothing)                 the empty text
//! ```
//! Hydra's OverrideLexer.g4 and OverrideParser.g4, 1.3. A comma outside of brackets, with which
//! Hydra sweeps over several values, is part of the text.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use serde_json::{Map, Number, Value};

use crate::refusal::Refusal;
use crate::tree::{self, MOST_PARTS};

/// The first part of a change that concerns all runs.
const SHARED: &str = "shared";

/// The first part of a change that concerns one run, which is the second part.
const RUNS: &str = "runs";

/// Maximum depth of brackets; the deepest value of an Experiment has six.
const MAX_DEPTH: usize = 32;

/// A change in Hydra's form: `KEY=VALUE`, for an Experiment also `+KEY=VALUE` and `++KEY=VALUE`, set
/// a value, `~KEY` removes it; `~runs.<name>` removes a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The dotted key; in an Experiment it begins with `shared.` or `runs.`.
    key: String,
    /// The new value; `None` removes the key.
    value: Option<Value>,
}

impl Change {
    /// Reads `KEY=VALUE` of `--set`.
    ///
    /// # Errors
    /// Refuses a text that has no key, or whose value is not complete.
    pub fn setting(text: &str) -> Result<Self, Refusal> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(Refusal::new(format_args!(
                "`{text}` has no `=`: expected KEY=VALUE, for example env.eval.total_num_envs=8"
            )));
        };
        let (key, value) = (checked(key)?, Some(read(value)?));
        Ok(Self { key, value })
    }

    /// Returns a tree with this setting only.
    pub fn tree(&self) -> Value {
        tree::at_path(&self.key, self.value.clone().unwrap_or_default())
    }

    /// Returns the dotted key.
    pub(crate) fn name(&self) -> &str {
        &self.key
    }

    /// Returns the path below `shared` if all runs are concerned.
    pub(super) fn shared(&self) -> Option<&str> {
        self.key.strip_prefix(SHARED)?.strip_prefix('.')
    }

    /// Returns the name of the run that is concerned, and the path below it, if it is only one.
    /// Without a path the whole run is removed.
    pub(super) fn run(&self) -> Option<(&str, Option<&str>)> {
        let run = self.key.strip_prefix(RUNS)?.strip_prefix('.')?;
        let path = run.split_once('.');
        Some(path.map_or((run, None), |(run, path)| (run, Some(path))))
    }

    /// Applies it at a path of the shared values or of its run.
    pub(super) fn apply(&self, to: &mut Value, path: &str) {
        match &self.value {
            Some(value) => *to = tree::merge(to.take(), tree::at_path(path, value.clone())),
            None => drop(tree::take(to, path)),
        }
    }
}

impl FromStr for Change {
    type Err = Refusal;

    /// Reads a change of an Experiment.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        if !text.starts_with('~') && !text.contains('=') {
            return Err(Refusal::new(format_args!(
                "`{text}` is neither an option nor KEY=VALUE; a jobs file is given by --jobs"
            )));
        }
        let (text, removes) = match text.strip_prefix('~') {
            Some(text) => (text, true),
            None => (text.trim_start_matches('+'), false),
        };
        // Hydra allows the value that is removed to be named.
        let (key, text) = text.split_once('=').unwrap_or((text, ""));
        let (key, value) = (checked(key)?, None);
        let mut change = Self { key, value };
        let is_of_run = change
            .run()
            .is_some_and(|(_, path)| removes || path.is_some());
        if change.shared().is_none() && !is_of_run {
            return Err(Refusal::new(format_args!(
                "`{}` is neither `shared.<path>` nor `runs.<name>.<path>`, the keys of an \
                 Experiment",
                change.key
            )));
        }
        if !removes {
            change.value = Some(read(text)?);
        }
        Ok(change)
    }
}

fn read(text: &str) -> Result<Value, Refusal> {
    value_of(text).map_err(|err| err.inside(format_args!("`{text}`")))
}

/// Returns a dotted key without blanks; none of its parts is empty.
fn checked(key: &str) -> Result<String, Refusal> {
    let parts: Vec<_> = key.split('.').map(str::trim).collect();
    match parts.contains(&"") || parts.len() > MOST_PARTS {
        true => Err(Refusal::new(format_args!(
            "`{key}` is not a key: expected names joined by dots, for example \
             env.eval.total_num_envs"
        ))),
        false => Ok(parts.join(".")),
    }
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name()),
            None => write!(f, "~{}", self.name()),
        }
    }
}

/// Reads a value; refuses a quoted text, list or mapping that is not complete.
fn value_of(text: &str) -> Result<Value, Refusal> {
    let text = text.trim();
    if !text.starts_with(['[', '{', '\'', '"']) {
        return Ok(primitive(&unescaped(text)));
    }
    let mut reader = Reader { rest: text };
    let value = reader.value(0)?;
    match reader.rest.is_empty() {
        true => Ok(value),
        false => Err(reader.expected("the end")),
    }
}

/// What is left to read.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, Refusal> {
        if depth > MAX_DEPTH {
            return Err(Refusal::new(format_args!(
                "brackets are more than {MAX_DEPTH} deep"
            )));
        }
        self.skip_space();
        let value = match self.rest.chars().next() {
            Some('[') => self.list(depth)?,
            Some('{') => self.mapping(depth)?,
            Some(mark @ ('\'' | '"')) => Value::String(self.quoted(mark)?),
            _ => primitive(&unescaped(self.unquoted(&[',', ']', '}']))),
        };
        self.skip_space();
        Ok(value)
    }

    fn list(&mut self, depth: usize) -> Result<Value, Refusal> {
        self.take('[');
        let mut items = Vec::new();
        self.skip_space();
        while !self.take(']') {
            items.push(self.value(depth + 1)?);
            self.end_item(']')?;
        }
        Ok(Value::Array(items))
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, Refusal> {
        self.take('{');
        let mut entries = Map::new();
        self.skip_space();
        while !self.take('}') {
            let key = self.key()?;
            let value = self.value(depth + 1)?;
            entries.insert(key, value);
            self.end_item('}')?;
        }
        Ok(Value::Object(entries))
    }

    /// Reads a name and the colon behind it.
    fn key(&mut self) -> Result<String, Refusal> {
        self.skip_space();
        let key = match self.rest.chars().next() {
            Some(mark @ ('\'' | '"')) => self.quoted(mark)?,
            _ => unescaped(self.unquoted(&[':', ',', ']', '}', '[', '{'])),
        };
        self.skip_space();
        match self.take(':') {
            true if !key.is_empty() => Ok(key),
            true => Err(self.expected("a name before `:`")),
            false => Err(self.expected("`:`")),
        }
    }

    /// Reads the comma behind an item; the closing bracket stays.
    fn end_item(&mut self, closing: char) -> Result<(), Refusal> {
        if self.take(',') {
            self.skip_space();
            return Ok(());
        }
        match self.rest.chars().next() {
            Some(found) if found == closing => Ok(()),
            Some(_) => Err(self.expected("`,` or a closing bracket")),
            None => Err(open(closing)),
        }
    }

    /// Reads a quoted text. A backslash only counts before the quotation mark, and before those
    /// backslashes that stand there.
    fn quoted(&mut self, mark: char) -> Result<String, Refusal> {
        self.take(mark);
        let (mut text, mut slashes) = (String::new(), 0);
        for (at, letter) in self.rest.char_indices() {
            if letter == '\\' {
                slashes += 1;
                continue;
            }
            let is_mark = letter == mark;
            let kept = if is_mark { slashes / 2 } else { slashes };
            text.extend(std::iter::repeat_n('\\', kept));
            if is_mark && slashes % 2 == 0 {
                self.rest = &self.rest[at + mark.len_utf8()..];
                return Ok(text);
            }
            slashes = 0;
            text.push(letter);
        }
        Err(open(mark))
    }

    /// Returns the text up to one of `ends`, which may stand behind a backslash or in `${…}`.
    fn unquoted(&mut self, ends: &[char]) -> &str {
        let (mut before, mut in_reference) = (' ', false);
        let mut end = self.rest.len();
        for (at, letter) in self.rest.char_indices() {
            let is_escaped = before == '\\';
            in_reference = match (before, letter) {
                ('$', '{') => true,
                (_, '}') if in_reference => {
                    before = letter;
                    in_reference = false;
                    continue;
                }
                _ => in_reference,
            };
            if ends.contains(&letter) && !is_escaped && !in_reference {
                end = at;
                break;
            }
            // Of two backslashes, the second one has no meaning of its own.
            before = if is_escaped { ' ' } else { letter };
        }
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        text.trim()
    }

    fn take(&mut self, letter: char) -> bool {
        let rest = self.rest.strip_prefix(letter);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn expected(&self, wanted: &'static str) -> Refusal {
        let found = match self.rest.chars().next() {
            Some(letter) => format!("`{}`", letter.escape_debug()),
            None => "the end".to_owned(),
        };
        Refusal::new(format_args!("found {found}, expected {wanted}"))
    }
}

fn open(mark: char) -> Refusal {
    Refusal::new(format_args!("`{mark}` is missing at the end"))
}

/// Replaces backslashes before characters that have a meaning by these characters.
fn unescaped(text: &str) -> String {
    let mut unescaped = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = letters.next_if(|next| letter == '\\' && "\\()[]{}:=, \t".contains(*next));
        unescaped.push(next.unwrap_or(letter));
    }
    unescaped
}

/// Returns the value of a text without quotation marks.
fn primitive(text: &str) -> Value {
    match text.to_ascii_lowercase().as_str() {
        "null" => return Value::Null,
        "true" => return true.into(),
        "false" => return false.into(),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits.ends_with(|last: char| last.is_ascii_digit() || last == '.')
        && digits.contains(|letter: char| letter.is_ascii_digit());
    let has_more_zeros = digits.len() > 1 && digits.starts_with('0') && !digits.contains('.');
    if !is_number || has_more_zeros || digits.contains("__") {
        return text.into();
    }
    number(&text.replace('_', "")).map_or_else(|| text.into(), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let whole = text.strip_prefix('+').unwrap_or(text);
    let signed = || whole.parse::<i64>().ok().map(Number::from);
    let float = || whole.parse::<f64>().ok().and_then(Number::from_f64);
    let unsigned = whole.parse::<u64>().ok().map(Number::from);
    unsigned.or_else(signed).or_else(float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_have_the_types_of_hydra_and_what_is_not_complete_is_refused() {
        rig::cases::check("src/experiment/values.txt", |text| {
            let change = Change::setting(text);
            change.map_or_else(|err| err.to_string(), |change| change.tree().to_string())
        });
        let deep = format!("a={}", "[".repeat(100_000));
        let told = Change::setting(&deep).unwrap_err().to_string();
        assert!(told.ends_with("brackets are more than 32 deep"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(
            text in "\\PC{0,30}|[\\[\\]{}:,'\"\\\\$a]{0,30}", key in "[a-z.]{0,9}"
        ) {
            let _ = (text.parse::<Change>(), Change::setting(&text), value_of(&text));
            let _ = Change::setting(&format!("{key}={text}"));
            let _ = format!("shared.{key}={text}").parse::<Change>();
        }
    }
}
