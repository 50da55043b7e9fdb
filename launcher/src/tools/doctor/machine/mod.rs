//! Checks of the machine and its limits, which only read files of the kernel.

mod adjtimex;
mod clock;
mod cpu;
mod limits;
mod memory;
mod system;

use crate::node::Node;
use crate::node::control_group::ControlGroups;
use crate::tools::doctor::check::Check;

/// What to do if a file of the kernel cannot be read in time.
const HANGS: &str = "the machine is overloaded or its kernel hangs: see `dmesg`";

/// Returns the checks, in order.
pub(super) fn checks(node: &Node) -> Vec<Check> {
    let (cpus, open_files) = (node.cpus, node.open_files);
    let groups = ControlGroups::of_this_process();
    let (of_cpu, of_memory, of_limits) = (groups.clone(), groups.clone(), groups);
    vec![
        Check::new("system", HANGS, || vec![system::found()]),
        Check::new("CPU", HANGS, move || {
            vec![cpu::CpuFacts::read(cpus, &of_cpu).judged()]
        }),
        Check::new("memory", HANGS, move || {
            vec![memory::MemoryFacts::read(&of_memory).judged()]
        }),
        Check::new("limits", HANGS, move || {
            limits::Limits::read(open_files, &of_limits).judged()
        }),
        Check::new("clock", HANGS, || vec![clock::ClockFacts::read().judged()]),
    ]
}

/// Returns the value of a line `name : value` or `name=value` of a file.
fn value<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(separator)?;
        (found.trim() == name).then_some(value.trim())
    })
}
