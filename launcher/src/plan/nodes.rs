//! `--nnodes` and `--node-rank`.

use crate::cli::python::int;
use crate::plan::error::PlanError;

/// Checks `--nnodes`, `N` or `MIN:MAX`, and gives the nodes that take part: one, in this version.
///
/// # Errors
/// What is no range, and ranges of more than one node.
pub fn nodes(given: &str) -> Result<usize, PlanError> {
    let number = |part: &str| int(part).ok_or_else(|| PlanError::NodesNumber(part.to_owned()));
    let (min, max) = match given.split(':').collect::<Vec<_>>()[..] {
        [count] => (number(count)?, number(count)?),
        [min, max] => (number(min)?, number(max)?),
        _ => return Err(PlanError::NodesFormat(given.to_owned())),
    };
    match (min, max) {
        (min, max) if min < 1 || min > max => Err(PlanError::NodesRange { min, max }),
        (1, 1) => Ok(1),
        _ => Err(PlanError::SeveralNodes(given.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_has_several_spellings() {
        assert_eq!(["1", "1:1", " 1 : +1"].map(nodes), [Ok(1), Ok(1), Ok(1)]);
    }

    #[test]
    fn several_nodes_are_refused_for_now() {
        assert_eq!(nodes("2"), Err(PlanError::SeveralNodes("2".to_owned())));
        assert_eq!(nodes("1:2"), Err(PlanError::SeveralNodes("1:2".to_owned())));
    }

    #[test]
    fn what_is_no_range_is_refused_in_torchrun_s_words() {
        assert_eq!(nodes("1:2:3").unwrap_err().to_string(), "nnodes=1:2:3 is not in \"MIN:MAX\" format");
        let text = "min_nodes must be > 0 and <= max_nodes, got min_nodes=2, max_nodes=1";
        assert_eq!(nodes("2:1").unwrap_err().to_string(), text);
        assert_eq!(nodes("0"), Err(PlanError::NodesRange { min: 0, max: 0 }));
        assert_eq!(nodes("a:1"), Err(PlanError::NodesNumber("a".to_owned())));
        assert_eq!(nodes(""), Err(PlanError::NodesNumber(String::new())));
    }
}
