//! Reads where each component stands, a YAML mapping or one line, and turns it into processes.
//!
//! ```text
//! place    := segment ("," segment)*      segment := GPUs [":" processes]
//! GPUs     := "all" | number | number "-" number
//! ```
//! As in RLinf, whitespace is ignored, empty segments are skipped, and processes are dealt in
//! blocks.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::placement::seat::{list, nearest};
use crate::placement::{PlacedProcess, Resources};
use crate::refusal::Refusal;

/// Components that have an effect in an evaluation.
const PLACED: [&str; 2] = ["env", "rollout"];

/// Components of RLinf's training, which have no effect in an evaluation.
const UNUSED: [&str; 6] = ["actor", "critic", "reward", "inference", "agent", "ref"];

/// The largest valid number of a GPU or a process; a larger one is taken for a typo.
const LARGEST: usize = 4095;

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
    /// Refuses a value that is no such mapping; [`Self::place`] parses the texts.
    pub fn from_value(value: &Value) -> Result<Self, Refusal> {
        let Value::Object(entries) = value else {
            return Err(no_mapping(&value.to_string()));
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
    /// than `all` begins another component, anything else continues the current one.
    ///
    /// # Errors
    /// As [`Self::from_value`].
    pub fn parse(line: &str) -> Result<Self, Refusal> {
        let mut groups: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
        let parts = line.split(',').map(str::trim);
        for part in parts.filter(|part| !part.is_empty()) {
            let (name, place) = match part.split_once(':') {
                Some((name, place)) => (name.trim(), Some(place)),
                None => (part, None),
            };
            match groups.last_mut() {
                Some((names, places)) if is_name(name) && places.is_empty() => {
                    names.push(name);
                    places.extend(place);
                }
                _ if is_name(name) => groups.push((vec![name], place.into_iter().collect())),
                Some((names, places)) if places.is_empty() => {
                    let names = names.join(",");
                    return Err(refused(format_args!(
                        "`{part}` follows `{names}`, a colon is missing between them"
                    )));
                }
                Some((_, places)) => places.push(part),
                None => {
                    return Err(refused(format_args!(
                        "`{part}` has no component before it, for example `env: {part}`"
                    )));
                }
            }
        }
        let mut components = Self::default();
        for (names, places) in &groups {
            components.add(names, &places.join(","))?;
            if places.is_empty() {
                let names = names.join(",");
                return Err(refused(format_args!(
                    "`{names}` has no place, for example `{names}: 0-1`"
                )));
            }
        }
        if groups.is_empty() {
            return Err(no_mapping("empty"));
        }
        Ok(components)
    }

    /// Returns these components merged over those of an earlier file.
    pub fn over(self, earlier: Self) -> Self {
        let mut places = earlier.places;
        places.extend(self.places);
        Self { places }
    }

    /// Returns the components without an effect, ordered by name.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        let names = self.places.keys().map(String::as_str);
        names.filter(|name| !PLACED.contains(name))
    }

    /// Returns the processes of one component.
    pub(super) fn place(
        &self,
        name: &'static str,
        resources: Resources,
    ) -> Result<Vec<PlacedProcess>, Refusal> {
        let Some(text) = self.places.get(name) else {
            return Err(Refusal::new(format_args!(
                "component_placement has no `{name}`; env and rollout are both required, and \
                 `env,rollout: all` puts them on the same GPUs"
            )));
        };
        let shown: String = text.trim().chars().take(80).collect();
        processes(text, resources).map_err(|fault| {
            Refusal::at(format_args!("component_placement {name}: `{shown}`"), fault)
        })
    }

    fn add(&mut self, names: &[&str], place: &str) -> Result<(), Refusal> {
        for name in names {
            known(name)?;
            let place = place.trim().to_owned();
            if self.places.insert((*name).to_owned(), place).is_some() {
                return Err(refused(format_args!("`{name}` is placed twice")));
            }
        }
        Ok(())
    }
}

fn refused(reason: impl std::fmt::Display) -> Refusal {
    Refusal::at("component_placement", reason)
}

fn no_mapping(found: &str) -> Refusal {
    let found: String = found.chars().take(80).collect();
    Refusal::new(format_args!(
        "component_placement is {found}, expected a mapping of components to GPUs, for example \
         `env: 0-1` and `rollout: 2-3`"
    ))
}

/// Returns whether a word can be a component name; `all` is a place.
fn is_name(word: &str) -> bool {
    let begins = word.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
    begins && !is_all(word)
}

fn known(name: &str) -> Result<(), Refusal> {
    if name.is_empty() {
        return Err(refused("a name is empty"));
    }
    if PLACED.contains(&name) || UNUSED.contains(&name) {
        return Ok(());
    }
    let found: String = name.chars().take(80).collect();
    Err(Refusal::unknown(
        "component_placement",
        "component",
        &found,
        &PLACED,
    ))
}

/// Returns a place as text: a number, a text, or a list of them.
fn text(component: &str, place: &Value) -> Result<String, Refusal> {
    match place {
        Value::String(text) => Ok(text.clone()),
        Value::Array(items) => {
            let texts = items.iter().map(|item| text(component, item));
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join(","))
        }
        Value::Null => Ok(String::new()),
        Value::Object(_) => {
            let wanted = "expected GPUs, which are numbered over all nodes, for example `0-3`";
            let component = format_args!("component_placement {component}");
            Err(Refusal::found(component, place, wanted))
        }
        Value::Number(_) | Value::Bool(_) => Ok(place.to_string()),
    }
}

/// Returns the processes of the segments of a text, by their process numbers.
fn processes(text: &str, resources: Resources) -> Result<Vec<PlacedProcess>, Refusal> {
    let dense: String = text
        .chars()
        .filter(|letter| !letter.is_whitespace())
        .collect();
    let mut placed: Vec<PlacedProcess> = Vec::new();
    let mut last_gpu: Option<usize> = None;
    let parts = dense.split(',').filter(|part| !part.is_empty());
    // What is no number is refused before a number that does not fit.
    let segments = parts.map(segment).collect::<Result<Vec<_>, _>>()?;
    for (gpus, processes) in segments {
        let gpus = there(gpus, resources)?;
        let found = *gpus.start();
        if let Some(last) = last_gpu.filter(|last| found <= *last) {
            return Err(Refusal::new(format_args!(
                "GPU {found} follows GPU {last}: expected GPUs in ascending order, each once, so \
                 {} or above",
                last + 1
            )));
        }
        last_gpu = Some(*gpus.end());
        placed.extend(deal(&gpus, processes, placed.len())?);
    }
    match placed.len() {
        0 => Err(Refusal::new(
            "it is empty, expected a GPU or a range, for example 0 or 0-3",
        )),
        count if count > LARGEST + 1 => Err(too_large(count - 1)),
        _ => stay_on_one_node(&placed, resources).map(|()| placed),
    }
}

/// Numbers of GPUs, `None` for all, and of processes; without these, each GPU has one process.
type Segment = (Option<RangeInclusive<usize>>, Option<RangeInclusive<usize>>);

fn segment(part: &str) -> Result<Segment, Refusal> {
    let (gpus, processes) = match part.split_once(':') {
        Some((_, processes)) if processes.contains(':') => {
            return Err(Refusal::new(format_args!(
                "`{part}` has more than one colon: expected GPUs or GPUs:processes, for example \
                 0-3:0-7"
            )));
        }
        Some((gpus, processes)) if is_all(processes) => {
            return Err(Refusal::new(format_args!(
                "`all` names GPUs, not processes; `{gpus}` alone gives each GPU one process"
            )));
        }
        Some((gpus, processes)) => (gpus, Some(range(processes)?)),
        None => (part, None),
    };
    let gpus = match is_all(gpus) {
        true => None,
        false => Some(range(gpus)?),
    };
    Ok((gpus, processes))
}

fn is_all(text: &str) -> bool {
    text.eq_ignore_ascii_case("all")
}

fn range(text: &str) -> Result<RangeInclusive<usize>, Refusal> {
    let number = |number: &str| {
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            let reason = format!("`{text}` is not a GPU or a range, for example 0 or 0-3");
            return Err(Refusal::new(reason));
        }
        let parsed = number.parse().ok();
        let shown = || too_large(number.chars().take(40).collect::<String>());
        parsed.filter(|number| *number <= LARGEST).ok_or_else(shown)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    match first > last {
        true => Err(Refusal::new(format_args!(
            "`{first}-{last}` is reversed: expected `{last}-{first}`"
        ))),
        false => Ok(first..=last),
    }
}

fn too_large(found: impl std::fmt::Display) -> Refusal {
    Refusal::new(format_args!(
        "{found} is too large: expected at most {LARGEST}"
    ))
}

/// Returns the numbers of GPUs that are there.
fn there(
    gpus: Option<RangeInclusive<usize>>,
    resources: Resources,
) -> Result<RangeInclusive<usize>, Refusal> {
    let Resources::Gpus { per_node, nodes } = resources else {
        return Ok(gpus.unwrap_or(0..=0));
    };
    let last = per_node * nodes - 1;
    let gpus = gpus.unwrap_or(0..=last);
    if *gpus.end() <= last {
        return Ok(gpus);
    }
    let those = match (per_node, nodes) {
        (1, 1) => "0".to_owned(),
        (_, 1) => format!("0 to {last}"),
        _ => format!("0 to {last} ({nodes} nodes with {per_node} each)"),
    };
    Err(Refusal::new(format_args!(
        "GPU {} does not exist, expected GPU {those}",
        (*gpus.start()).max(last + 1)
    )))
}

/// Deals GPUs to processes: consecutive processes share a GPU, or each process has a block of GPUs.
/// `next` is the number of the first process.
fn deal(
    gpus: &RangeInclusive<usize>,
    processes: Option<RangeInclusive<usize>>,
    next: usize,
) -> Result<Vec<PlacedProcess>, Refusal> {
    let gpus: Vec<usize> = gpus.clone().collect();
    let count = match processes {
        None => gpus.len(),
        Some(range) if *range.start() != next => {
            return Err(Refusal::new(format_args!(
                "found process {}, expected {next}: processes are numbered without gaps",
                range.start()
            )));
        }
        Some(range) => range.count(),
    };
    let process = |gpus: &[usize]| PlacedProcess {
        gpus: gpus.to_vec(),
    };
    if gpus.len().is_multiple_of(count) {
        return Ok(gpus.chunks(gpus.len() / count).map(process).collect());
    }
    if !count.is_multiple_of(gpus.len()) {
        let all = gpus.len();
        let fits = |number: &usize| all.is_multiple_of(*number) || number.is_multiple_of(all);
        return Err(Refusal::new(format_args!(
            "{count} processes cannot be divided evenly among {all} GPUs; {} can",
            list(&nearest(count, count + all, fits))
        )));
    }
    let each = count / gpus.len();
    let of = |nth: usize| process(&gpus[nth / each..=nth / each]);
    Ok((0..count).map(of).collect())
}

fn stay_on_one_node(placed: &[PlacedProcess], resources: Resources) -> Result<(), Refusal> {
    for (process, PlacedProcess { gpus }) in placed.iter().enumerate() {
        let (Some(&first), Some(&last)) = (gpus.first(), gpus.last()) else {
            continue;
        };
        if let (Some(a), Some(b)) = (resources.node(first), resources.node(last))
            && a != b
        {
            return Err(Refusal::new(format_args!(
                "process {process} has GPUs {first} to {last}, which are on nodes {a} and {b}; a \
                 process stays on one"
            )));
        }
    }
    Ok(())
}
