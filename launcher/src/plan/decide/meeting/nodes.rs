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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_range_of_one() {
        let one = || Ok(Nodes { min: 1, max: 1 });
        assert_eq!(["1", "1:1", " 1 : +1"].map(nodes), [one(), one(), one()]);
        assert_eq!(
            ["4", "2:1_0"].map(nodes),
            [Ok(Nodes { min: 4, max: 4 }), Ok(Nodes { min: 2, max: 10 })]
        );
    }

    #[test]
    fn what_is_no_range_is_refused_in_torchrun_s_words() {
        assert_eq!(
            nodes("1:2:3").unwrap_err().to_string(),
            "nnodes=1:2:3 is not in \"MIN:MAX\" format"
        );
        let text = "min_nodes must be > 0 and <= max_nodes, got min_nodes=2, max_nodes=1";
        assert_eq!(nodes("2:1").unwrap_err().to_string(), text);
        assert_eq!(nodes("0"), Err(PlanError::NodesRange { min: 0, max: 0 }));
        assert_eq!(nodes("-1"), Err(PlanError::NodesRange { min: -1, max: -1 }));
        assert_eq!(nodes("a:1"), Err(PlanError::NodesNumber("a".to_owned())));
        assert_eq!(nodes(""), Err(PlanError::NodesNumber(String::new())));
    }
}
