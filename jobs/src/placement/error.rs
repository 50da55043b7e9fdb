//! Why a placement is refused.

use crate::placement::Resources;

/// A placement that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No mapping of names to places.
    #[error(
        "component_placement is {found}, a mapping of components to GPUs is needed, as `env: 0-1` and `rollout: 2-3`"
    )]
    Shape {
        /// What stands there.
        found: String,
    },
    /// A key that names nothing.
    #[error("component_placement: {0}")]
    Names(String),
    /// A component with two places.
    #[error("component_placement: `{0}` is placed twice")]
    Twice(String),
    /// A component that nobody knows.
    #[error("component_placement: no component is called `{found}`{hint}; known are env and rollout")]
    Unknown {
        /// As written.
        found: String,
        /// The nearest one, as a clause.
        hint: String,
    },
    /// One of the two is not there.
    #[error("component_placement has no `{0}`; both are needed, `env,rollout: all` puts them on the same GPUs")]
    Missing(&'static str),
    /// Node groups.
    #[error("component_placement {component}: `{key}` is not supported; GPUs are numbered over all nodes, as `0-3`")]
    NodeGroup {
        /// Whose.
        component: String,
        /// `node_group`, or what else stands in the mapping.
        key: String,
    },
    /// The text of a component.
    #[error("component_placement {component}: `{text}`: {fault}")]
    Component {
        /// Whose.
        component: String,
        /// As written.
        text: String,
        /// What is wrong with it.
        fault: Fault,
    },
}

/// What is wrong with the text of a component.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing at all.
    #[error("nothing is placed there; a GPU or a range is needed, as 0 or 0-3")]
    Empty,
    /// Neither number nor range.
    #[error("`{0}` is no number and no range, as 0 or 0-3")]
    NotRange(String),
    /// Two colons.
    #[error("`{0}` has more than one colon; it is GPUs, or GPUs:processes, as 0-3:0-7")]
    Colons(String),
    /// `3-1`.
    #[error("`{first}-{last}` runs backwards; `{last}-{first}` is the range")]
    Backwards {
        /// First number.
        first: usize,
        /// Second number.
        last: usize,
    },
    /// `0-3:all`.
    #[error("`all` names GPUs, not processes; `{0}` alone gives one process a GPU")]
    AllProcesses(String),
    /// Beyond reason.
    #[error("{found} is too large a number; the largest is {most}")]
    TooLarge {
        /// As written.
        found: String,
        /// The limit.
        most: usize,
    },
    /// A GPU that is not there.
    #[error("GPU {gpu} is not there, {}", there(*.resources))]
    NotThere {
        /// The first one.
        gpu: usize,
        /// What there is.
        resources: Resources,
    },
    /// A resource again, or an earlier one.
    #[error("GPU {found} comes after GPU {last}; GPUs ascend and each is named once, so {} or above is needed", .last + 1)]
    GpuOrder {
        /// First of the segment.
        found: usize,
        /// Last of the segment before.
        last: usize,
    },
    /// Processes that do not go on where the last ones ended.
    #[error("processes go on without a gap from {wanted}, {found} was found")]
    ProcessOrder {
        /// First of the segment.
        found: usize,
        /// What is next.
        wanted: usize,
    },
    /// Neither count is a multiple of the other.
    #[error("{processes} processes cannot be dealt evenly over {gpus} GPUs; {} can", list(.nearest))]
    Uneven {
        /// Processes of the segment.
        processes: usize,
        /// GPUs of the segment.
        gpus: usize,
        /// Numbers of processes that can, ascending.
        nearest: Vec<usize>,
    },
    /// A process with GPUs of two nodes.
    #[error("process {process} has GPUs {first} to {last}, which are on nodes {} and {}; a process stays on one", .nodes.0, .nodes.1)]
    Straddles {
        /// Which.
        process: usize,
        /// Its first GPU.
        first: usize,
        /// Its last GPU.
        last: usize,
        /// Nodes of both.
        nodes: (usize, usize),
    },
}

/// What there is, as a clause.
fn there(resources: Resources) -> String {
    match resources {
        Resources::Gpus { per_node: 1, nodes: 1 } => "only GPU 0 is".to_owned(),
        Resources::Gpus { per_node, nodes: 1 } => format!("GPU 0 to {} are", per_node - 1),
        Resources::Gpus { per_node, nodes } => {
            format!("GPU 0 to {} are ({nodes} nodes with {per_node} each)", per_node * nodes - 1)
        }
        Resources::Labels => "there is no GPU at all".to_owned(),
    }
}

/// `2`, `2 or 4`, `1, 2 or 4`.
pub(crate) fn list(numbers: &[usize]) -> String {
    let texts: Vec<_> = numbers.iter().map(usize::to_string).collect();
    match texts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "none".to_owned(),
    }
}
