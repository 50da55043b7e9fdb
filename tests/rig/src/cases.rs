//! Cases in a text file: what is given, and under it, after `! `, what comes of it.
//!
//! ```text
//! ## a count is a whole number
//! num_episodes = 0
//! ! job 0 (a), field `num_episodes`: found 0, expected a whole number above 0
//! ```
//! Blank lines separate cases; `## ` begins a comment. `UPDATE_CASES=1` writes what comes now into
//! the file, whose difference is then reviewed like code.
//!
//! What is given may be changes of a document, [`changed`], and what comes of it may be said as
//! changes, [`changes`].

use std::path::Path;

use serde_json::Value;

/// Checks every case of a file; `answer` says what comes of what is given.
///
/// # Panics
///
/// With all cases that differ, unless `UPDATE_CASES` is set.
#[track_caller]
pub fn check(file: impl AsRef<Path>, answer: impl FnMut(&str) -> String) {
    compare(
        file.as_ref(),
        answer,
        std::env::var_os("UPDATE_CASES").is_some(),
    );
}

/// Checks a file whose answers are not ours to change: what another program says. It is never
/// rewritten.
///
/// # Panics
///
/// With all cases that differ.
#[track_caller]
pub fn evidence(file: impl AsRef<Path>, answer: impl FnMut(&str) -> String) {
    compare(file.as_ref(), answer, false);
}

#[track_caller]
fn compare(path: &Path, answer: impl FnMut(&str) -> String, is_update: bool) {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    let found = answered(&text, answer);
    if is_update {
        std::fs::write(path, found).unwrap();
        return;
    }
    assert!(!text.trim().is_empty(), "{} has no case", path.display());
    let differing = differing(&text, &found);
    assert!(differing.is_empty(), "{}:\n{differing}", path.display());
}

/// Returns the file with the answers of now.
fn answered(text: &str, mut answer: impl FnMut(&str) -> String) -> String {
    let mut cases = Vec::new();
    for case in text
        .split("\n\n")
        .map(str::trim_end)
        .filter(|case| !case.trim().is_empty())
    {
        let case = case.trim_start_matches('\n');
        let kept: Vec<&str> = case.lines().filter(|line| !is_answer(line)).collect();
        let given: Vec<&str> = kept
            .iter()
            .copied()
            .filter(|line| !line.starts_with("## "))
            .collect();
        let mut lines: Vec<String> = kept.iter().map(|&line| line.to_owned()).collect();
        if !given.is_empty() {
            let said = answer(&given.join("\n"));
            lines.extend(
                said.lines()
                    .map(|line| format!("! {line}").trim_end().to_owned()),
            );
        }
        cases.push(lines.join("\n"));
    }
    cases.join("\n\n") + "\n"
}

fn is_answer(line: &str) -> bool {
    line == "!" || line.starts_with("! ")
}

/// Returns the cases that differ, with both answers.
fn differing(wanted: &str, found: &str) -> String {
    let cases = |text: &str| -> Vec<String> {
        let cases = text.split("\n\n").map(|case| case.trim().to_owned());
        cases.filter(|case| !case.is_empty()).collect()
    };
    let pairs = cases(wanted)
        .into_iter()
        .zip(cases(found))
        .filter(|(wanted, found)| wanted != found);
    pairs
        .map(|(wanted, found)| format!("wanted\n{wanted}\nfound\n{found}\n\n"))
        .collect()
}

/// Returns a document with a change for each line: `path/to/field = JSON`, or `- path/to/field`
/// for one that is gone. An entry of a list has its position as its name.
#[track_caller]
pub fn changed(document: &Value, lines: &str) -> Value {
    let mut document = document.clone();
    for line in lines.lines() {
        let (path, value) = match line.split_once(" = ") {
            Some((path, json)) => (path, Some(read(line, json))),
            None => (
                line.strip_prefix("- ").expect("`path = JSON` or `- path`"),
                None,
            ),
        };
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let names = above.split('/').filter(|name| !name.is_empty());
        let place = names.fold(&mut document, |place, name| field(place, name));
        match (value, place) {
            (Some(value), place) => *field(place, name) = value,
            (None, Value::Object(fields)) => drop(fields.remove(name)),
            (None, Value::Array(entries)) => {
                drop(entries.remove(name.parse().expect("a position")))
            }
            (None, _) => panic!("{line}: there is neither an object nor a list"),
        }
    }
    document
}

#[track_caller]
fn read(line: &str, json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|err| panic!("{line}: {err}"))
}

fn field<'a>(place: &'a mut Value, name: &str) -> &'a mut Value {
    match name.parse::<usize>() {
        Ok(position) if place.is_array() => &mut place[position],
        _ => &mut place[name],
    }
}

/// Returns the lines by which [`changed`] makes one document of another.
pub fn changes(before: &Value, now: &Value) -> String {
    let mut lines = Vec::new();
    add_changes("", Some(before), Some(now), &mut lines);
    lines.join("\n")
}

fn add_changes(path: &str, before: Option<&Value>, now: Option<&Value>, lines: &mut Vec<String>) {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    };
    match (before, now) {
        (Some(before), Some(now)) if before == now => (),
        (Some(Value::Object(before)), Some(Value::Object(now))) => {
            let gone = before.keys().filter(|name| !now.contains_key(*name));
            for name in now.keys().chain(gone) {
                add_changes(&below(name), before.get(name), now.get(name), lines);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(now))) if before.len() == now.len() => {
            for (position, (before, now)) in before.iter().zip(now).enumerate() {
                add_changes(
                    &below(&position.to_string()),
                    Some(before),
                    Some(now),
                    lines,
                );
            }
        }
        (_, Some(now)) => lines.push(format!("{path} = {now}")),
        (_, None) => lines.push(format!("- {path}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEXT: &str = "## halves\n4\n! 2\n\n6\n! 4\n\n8\n9\n";

    fn halves(given: &str) -> String {
        given
            .lines()
            .map(|line| format!("{}\n", line.parse::<u32>().unwrap() / 2))
            .collect()
    }

    #[test]
    fn answers_stand_under_what_is_given() {
        assert_eq!(
            answered(TEXT, halves),
            "## halves\n4\n! 2\n\n6\n! 3\n\n8\n9\n! 4\n! 4\n"
        );
    }

    #[test]
    fn a_case_that_differs_is_shown_with_both_answers() {
        let differing = differing(TEXT, &answered(TEXT, halves));
        assert!(
            differing.starts_with("wanted\n6\n! 4\nfound\n6\n! 3\n"),
            "{differing}"
        );
        assert!(!differing.contains("halves"), "{differing}");
    }

    #[test]
    fn changes_lead_from_one_document_to_the_other() {
        let before = json!({"a": {"b": [1, {"c": 2}], "gone": 0}, "same": null});
        let lines = "a/b/1/c = {\"d\": \"x = y\"}\na/new/deep = 1\n- a/gone";
        let now = changed(&before, lines);
        assert_eq!(
            now,
            json!({"a": {"b": [1, {"c": {"d": "x = y"}}], "new": {"deep": 1}}, "same": null})
        );
        let said = "a/b/1/c = {\"d\":\"x = y\"}\na/new = {\"deep\":1}\n- a/gone";
        assert_eq!(changes(&before, &now), said);
        assert_eq!(changed(&before, said), now);
    }
}
