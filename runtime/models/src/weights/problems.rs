//! Collects everything that is wrong with the tensors of a checkpoint, to report it at once.

use safetensors::Dtype;

/// Maximum number of tensors listed per kind of problem; the rest is only counted.
const MOST: usize = 20;

/// A problem of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The network needs the tensor, and the checkpoint does not have it.
    Missing { name: String, shape: Vec<i64> },
    /// The tensor has another shape.
    Shape {
        name: String,
        found: Vec<i64>,
        wanted: Vec<i64>,
    },
    /// The tensor has a type that weights cannot have.
    Type { name: String, found: Dtype },
    /// The checkpoint has the tensor, and the network does not know it.
    Unexpected { name: String },
}

impl Problem {
    /// Returns the name of the tensor.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Missing { name, .. }
            | Self::Shape { name, .. }
            | Self::Type { name, .. }
            | Self::Unexpected { name } => name,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::Shape { .. } | Self::Type { .. } => "wrong",
            Self::Unexpected { .. } => "unexpected",
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Missing { name, shape } => format!("`{name}` {shape:?}"),
            Self::Shape {
                name,
                found,
                wanted,
            } => format!("`{name}` is {found:?}, expected {wanted:?}"),
            Self::Type { name, found } => {
                format!("`{name}` is {found}, expected F32, BF16, F16 or F64")
            }
            Self::Unexpected { name } => format!("`{name}`"),
        }
    }
}

/// Formats all problems as one text: the number of each kind, and the affected tensors.
pub(super) fn told(problems: &[Problem]) -> String {
    let part = |kind: &str| {
        let texts: Vec<_> = problems
            .iter()
            .filter(|problem| problem.kind() == kind)
            .map(Problem::text)
            .collect();
        let tensors = if texts.len() == 1 {
            "tensor"
        } else {
            "tensors"
        };
        let rest = match texts.len().saturating_sub(MOST) {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        let listed = texts[..texts.len().min(MOST)].join(", ");
        (!texts.is_empty()).then(|| format!("{} {kind} {tensors}: {listed}{rest}", texts.len()))
    };
    ["missing", "wrong", "unexpected"]
        .into_iter()
        .filter_map(part)
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut() {
        let problems: Vec<_> = (0..25)
            .map(|at| Problem::Unexpected {
                name: at.to_string(),
            })
            .collect();
        let text = told(&problems);
        assert!(
            text.starts_with("25 unexpected tensors: `0`, ") && text.ends_with("`19` and 5 more"),
            "{text}"
        );
    }
}
