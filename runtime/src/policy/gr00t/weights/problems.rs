//! What is wrong with the tensors of a checkpoint, told at once.

use std::fmt::Write;

/// Names told of one kind of problem; the rest is counted.
const MOST: usize = 20;

/// Problems by kind, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Problems {
    missing: Vec<String>,
    wrong: Vec<String>,
    unexpected: Vec<String>,
}

impl Problems {
    /// A tensor that the network needs is not there.
    pub(super) fn missing(&mut self, name: &str, shape: &[i64]) {
        self.missing.push(format!("`{name}` {shape:?}"));
    }

    /// A tensor has another shape.
    pub(super) fn shape(&mut self, name: &str, found: &[i64], wanted: &[i64]) {
        self.wrong.push(format!("`{name}` is {found:?}, {wanted:?} is needed"));
    }

    /// A tensor has a type that weights cannot have.
    pub(super) fn dtype(&mut self, name: &str, found: &str) {
        self.wrong.push(format!("`{name}` is {found}, BF16, F16, F32 or F64 is needed"));
    }

    /// A tensor is there that the network does not know.
    pub(super) fn unexpected(&mut self, name: &str) {
        // One that is there with another shape is known.
        if !self.wrong.iter().any(|wrong| wrong.starts_with(&format!("`{name}` "))) {
            self.unexpected.push(format!("`{name}`"));
        }
    }

    /// All of it in one text, if there is any.
    pub(super) fn text(&self) -> Option<String> {
        let kinds = [("missing", &self.missing), ("wrong", &self.wrong), ("unexpected", &self.unexpected)];
        let parts: Vec<_> =
            kinds.iter().filter(|(_, list)| !list.is_empty()).map(|(kind, list)| part(kind, list)).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

fn part(kind: &str, list: &[String]) -> String {
    let tensors = if list.len() == 1 { "tensor" } else { "tensors" };
    let mut text = format!("{} {kind} {tensors}: {}", list.len(), list[..list.len().min(MOST)].join(", "));
    if list.len() > MOST {
        let _ = write!(text, " and {} more", list.len() - MOST);
    }
    text
}
