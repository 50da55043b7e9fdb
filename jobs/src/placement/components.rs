//! Parses components and their places as the user wrote them: a YAML mapping, or one line.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::placement::error::PlacementError;
use crate::placement::{PlacedProcess, Resources, grammar, mapping};
use crate::similar::{self, most_similar};

/// Components that have an effect in an evaluation.
const PLACED: [&str; 2] = ["env", "rollout"];

/// Components of RLinf's training, which have no effect in an evaluation.
const UNUSED: [&str; 6] = ["actor", "critic", "reward", "inference", "agent", "ref"];

/// The place of each component as text, not yet parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Components {
    places: BTreeMap<String, String>,
}

impl Components {
    /// Reads `component_placement` of a YAML file. Keys are names, joined by commas; a value is a
    /// number, a text, or a list of both.
    ///
    /// # Errors
    /// Returns [`PlacementError`] if the value is no such mapping; [`Self::place`] parses the
    /// texts.
    pub fn from_value(value: &Value) -> Result<Self, PlacementError> {
        let Value::Object(entries) = value else {
            return Err(PlacementError::Shape {
                found: value.to_string().chars().take(80).collect(),
            });
        };
        let mut components = Self::default();
        for (names, place) in entries {
            let place = text(names, place)?;
            let names: Vec<&str> = names.split(',').map(str::trim).collect();
            components.add(&names, &place)?;
        }
        Ok(components)
    }

    /// Parses one line, as in `env: 0-1, rollout: 2-3`, `env,rollout: all` or `env: 0-1,3, rollout:
    /// 2:0-2`.
    ///
    /// A comma may separate components, names and segments. The text after it decides: a name other
    /// than `all` begins another component, anything else continues the current one. Braces around
    /// the line, and `;` instead of the comma between components, are accepted.
    ///
    /// # Errors
    /// As [`Self::from_value`].
    pub fn parse(line: &str) -> Result<Self, PlacementError> {
        let line = line.trim();
        let line = line
            .strip_prefix('{')
            .and_then(|line| line.strip_suffix('}'))
            .unwrap_or(line);
        let (mut components, mut names) = (Self::default(), Vec::new());
        let mut current: Option<(Vec<&str>, Vec<&str>)> = None;
        for part in line
            .split([',', ';', '\n'])
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (name, rest) = part
                .split_once(':')
                .map_or((part, None), |(name, rest)| (name.trim(), Some(rest)));
            match (is_name(name), rest) {
                (true, None) => names.push(name),
                (true, Some(first)) => {
                    names.push(name);
                    let next = (std::mem::take(&mut names), vec![first]);
                    components.add_all(current.replace(next))?;
                }
                (false, _) if !names.is_empty() => {
                    let text = format!(
                        "`{part}` follows `{}`, a colon is missing between them",
                        names.join(",")
                    );
                    return Err(PlacementError::Names(text));
                }
                (false, _) => match &mut current {
                    Some((_, segments)) => segments.push(part),
                    None => {
                        let text = format!(
                            "`{part}` has no component before it, for example `env: \
                                {part}`"
                        );
                        return Err(PlacementError::Names(text));
                    }
                },
            }
        }
        components.add_all(current)?;
        names.iter().try_for_each(|name| known(name))?;
        match names.as_slice() {
            [] if components.places.is_empty() => Err(PlacementError::Shape {
                found: "empty".to_owned(),
            }),
            [] => Ok(components),
            names => Err(PlacementError::Names(format!(
                "`{}` has no place, for example `{0}: 0-1`",
                names.join(",")
            ))),
        }
    }

    /// Returns these components merged over those of an earlier file.
    pub fn over(self, earlier: Self) -> Self {
        let mut places = earlier.places;
        places.extend(self.places);
        Self { places }
    }

    /// Returns the components without an effect, ordered by name.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        self.places
            .keys()
            .map(String::as_str)
            .filter(|name| !PLACED.contains(name))
    }

    /// Returns the processes of one component.
    pub(super) fn place(
        &self,
        name: &'static str,
        resources: Resources,
    ) -> Result<Vec<PlacedProcess>, PlacementError> {
        let text = self.places.get(name).ok_or(PlacementError::Missing(name))?;
        let processes =
            grammar::segments(text).and_then(|segments| mapping::processes(&segments, resources));
        let text = || text.trim().chars().take(80).collect();
        processes.map_err(|fault| PlacementError::Component {
            component: name.to_owned(),
            text: text(),
            fault,
        })
    }

    fn add_all(&mut self, entry: Option<(Vec<&str>, Vec<&str>)>) -> Result<(), PlacementError> {
        entry.map_or(Ok(()), |(names, segments)| {
            self.add(&names, &segments.join(","))
        })
    }

    fn add(&mut self, names: &[&str], place: &str) -> Result<(), PlacementError> {
        for name in names {
            known(name)?;
            if self
                .places
                .insert((*name).to_owned(), place.trim().to_owned())
                .is_some()
            {
                return Err(PlacementError::Twice((*name).to_owned()));
            }
        }
        Ok(())
    }
}

/// Returns whether a word can be a component name; `all` is a place.
fn is_name(word: &str) -> bool {
    let begins = word.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
    begins && !grammar::is_all(word)
}

fn known(name: &str) -> Result<(), PlacementError> {
    if name.is_empty() {
        return Err(PlacementError::Names("a name is empty".to_owned()));
    }
    if PLACED.contains(&name) || UNUSED.contains(&name) {
        return Ok(());
    }
    let close = most_similar(name, PLACED.iter().copied(), similar::FIELD);
    let hint = close
        .map(|known| format!(" (did you mean `{known}`?)"))
        .unwrap_or_default();
    Err(PlacementError::Unknown {
        found: name.chars().take(80).collect(),
        hint,
    })
}

/// Returns a place as text: a number, a text, or a list of them.
fn text(component: &str, place: &Value) -> Result<String, PlacementError> {
    match place {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Array(items) => {
            let texts: Vec<_> = items
                .iter()
                .map(|item| text(component, item))
                .collect::<Result<_, _>>()?;
            Ok(texts.join(","))
        }
        Value::Null => Ok(String::new()),
        Value::Object(entries) => {
            let key = entries
                .keys()
                .find(|key| *key == "node_group")
                .or(entries.keys().next());
            let key = key.map_or("{}", String::as_str).to_owned();
            Err(PlacementError::NodeGroup {
                component: component.to_owned(),
                key,
            })
        }
        Value::Bool(_) => Ok(place.to_string()),
    }
}
