//! Parses `--nnodes`.

use crate::cli::python::int;
use crate::plan::error::PlanError;

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
pub fn nodes(given: &str) -> Result<Nodes, PlanError> {
    let number = |part: &str| int(part).ok_or_else(|| PlanError::NodesNumber(part.to_owned()));
    let (min, max) = match given.split(':').collect::<Vec<_>>()[..] {
        [count] => (number(count)?, number(count)?),
        [min, max] => (number(min)?, number(max)?),
        _ => return Err(PlanError::NodesFormat(given.to_owned())),
    };
    match (usize::try_from(min), usize::try_from(max)) {
        (Ok(least), Ok(most)) if least > 0 && least <= most => Ok(Nodes {
            min: least,
            max: most,
        }),
        _ => Err(PlanError::NodesRange { min, max }),
    }
}
