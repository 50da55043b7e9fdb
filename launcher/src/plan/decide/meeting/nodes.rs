//! Parses `--nnodes`.

use anyhow::{Context as _, bail};

use crate::cli::python::int;

/// The number of nodes that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Fewest nodes.
    pub min: usize,
    /// Most nodes.
    pub max: usize,
}

/// Parses `--nnodes`, `N` or `MIN:MAX`.
///
/// # Errors
/// Returns an error if it is not a valid range.
pub fn nodes(given: &str) -> anyhow::Result<Nodes> {
    let number =
        |part: &str| int(part).with_context(|| format!("--nnodes: `{part}` is not a whole number"));
    let (min, max) = match given.split(':').collect::<Vec<_>>()[..] {
        [count] => (number(count)?, number(count)?),
        [min, max] => (number(min)?, number(max)?),
        _ => bail!("nnodes={given} is not in \"MIN:MAX\" format"),
    };
    match (usize::try_from(min), usize::try_from(max)) {
        (Ok(least), Ok(most)) if least > 0 && least <= most => Ok(Nodes {
            min: least,
            max: most,
        }),
        _ => bail!("min_nodes must be > 0 and <= max_nodes, got min_nodes={min}, max_nodes={max}"),
    }
}
