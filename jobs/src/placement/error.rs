//! The error type of placements.

use crate::placement::Resources;

/// Why a placement is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// `component_placement` is not a mapping of names to places.
    #[error(
        "component_placement is {found}, expected a mapping of components to GPUs, for example \
         `env: 0-1` and `rollout: 2-3`"
    )]
    Shape {
        /// The value found there.
        found: String,
    },
    /// A key without a component name.
    #[error("component_placement: {0}")]
    Names(String),
    /// A component with two places.
    #[error("component_placement: `{0}` is placed twice")]
    Twice(String),
    /// An unknown component.
    #[error("component_placement: unknown component `{found}`{hint}; expected env or rollout")]
    Unknown {
        /// The name as written.
        found: String,
        /// The nearest name, as a clause.
        hint: String,
    },
    /// `env` or `rollout` is missing.
    #[error(
        "component_placement has no `{0}`; env and rollout are both required, and `env,rollout: \
         all` puts them on the same GPUs"
    )]
    Missing(&'static str),
    /// Node groups are not supported.
    #[error(
        "component_placement {component}: `{key}` is not supported; GPUs are numbered over all \
         nodes, for example `0-3`"
    )]
    NodeGroup {
        /// The component with the mapping.
        component: String,
        /// `node_group`, or another key of the mapping.
        key: String,
    },
    /// The text of a component is invalid.
    #[error("component_placement {component}: `{text}`: {fault}")]
    Component {
        /// Name of the component.
        component: String,
        /// The text as written.
        text: String,
        /// The reason.
        fault: ComponentError,
    },
}

/// Why the text of a component is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComponentError {
    /// The text is empty.
    #[error("it is empty, expected a GPU or a range, for example 0 or 0-3")]
    Empty,
    /// A segment is neither a number nor a range.
    #[error("`{0}` is not a GPU or a range, for example 0 or 0-3")]
    NotRange(String),
    /// A segment has two colons.
    #[error("`{0}` has more than one colon: expected GPUs or GPUs:processes, for example 0-3:0-7")]
    Colons(String),
    /// The range is descending, as in `3-1`.
    #[error("`{first}-{last}` is reversed: expected `{last}-{first}`")]
    Backwards {
        /// First number of the range.
        first: usize,
        /// Second number of the range.
        last: usize,
    },
    /// `all` in place of process numbers, as in `0-3:all`.
    #[error("`all` names GPUs, not processes; `{0}` alone gives each GPU one process")]
    AllProcesses(String),
    /// A number is larger than the limit.
    #[error("{found} is too large: expected at most {most}")]
    TooLarge {
        /// The number as written.
        found: String,
        /// The limit.
        most: usize,
    },
    /// A GPU that does not exist.
    #[error("GPU {gpu} does not exist, {}", there(*.resources))]
    NotThere {
        /// The first such GPU.
        gpu: usize,
        /// The available resources.
        resources: Resources,
    },
    /// A resource that is repeated or out of order.
    #[error("GPU {found} follows GPU {last}: expected GPUs in ascending order, each once, so {} or \
        above", .last + 1)]
    GpuOrder {
        /// First number of the segment.
        found: usize,
        /// Last number of the segment before.
        last: usize,
    },
    /// The process numbers do not continue those of the segment before.
    #[error("found process {found}, expected {wanted}: processes are numbered without gaps")]
    ProcessOrder {
        /// First process of the segment.
        found: usize,
        /// The next process number.
        wanted: usize,
    },
    /// Neither the number of processes nor that of GPUs is a multiple of the other.
    #[error("{processes} processes cannot be divided evenly among {gpus} GPUs; {} can", list(.nearest))]
    Uneven {
        /// Number of processes of the segment.
        processes: usize,
        /// Number of GPUs of the segment.
        gpus: usize,
        /// Nearest valid numbers of processes, ascending.
        nearest: Vec<usize>,
    },
    /// A process with GPUs on two nodes.
    #[error("process {process} has GPUs {first} to {last}, which are on nodes {} and {}; a process stays on one", .nodes.0, .nodes.1)]
    Straddles {
        /// Number of the process.
        process: usize,
        /// Its first GPU.
        first: usize,
        /// Its last GPU.
        last: usize,
        /// The nodes of both GPUs.
        nodes: (usize, usize),
    },
}

/// Describes the available resources, as a clause.
fn there(resources: Resources) -> String {
    match resources {
        Resources::Gpus {
            per_node: 1,
            nodes: 1,
        } => "expected GPU 0".to_owned(),
        Resources::Gpus { per_node, nodes: 1 } => format!("expected GPU 0 to {}", per_node - 1),
        Resources::Gpus { per_node, nodes } => {
            format!(
                "expected GPU 0 to {} ({nodes} nodes with {per_node} each)",
                per_node * nodes - 1
            )
        }
        Resources::Labels => "there is no GPU".to_owned(),
    }
}

/// Formats a list as `2`, `2 or 4` or `1, 2 or 4`.
pub(crate) fn list(numbers: &[usize]) -> String {
    let texts: Vec<_> = numbers.iter().map(usize::to_string).collect();
    match texts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "none".to_owned(),
    }
}
