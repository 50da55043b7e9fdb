//! The golden cases on a GPU: every tensor of the network.

use crate::gpu::card::device;
use crate::parity::case::cases;
use crate::parity::compare::Tolerance;
use crate::parity::network::{FLOAT32, every_step, is_repeated, judge};

/// Prefixes of the tensors that belong to the processor, to the policy, or to a run in float32.
const ELSEWHERE: [&str; 3] = ["pre.", "action.", FLOAT32];

/// A GPU sums in another order than the CPU on which the bounds of the float32 cases were measured.
const CARD: Tolerance = Tolerance {
    relative: 5e-5,
    of_largest: 1e-4,
    absolute: f64::INFINITY,
};

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_every_tensor_of_the_goldens_is_the_references() {
    let device = device();
    let _no_grad = tch::no_grad_guard();
    for case in cases() {
        let found = every_step(&case, &case.network_on(device, case.kind()));
        let is_here = |name: &str| !ELSEWHERE.iter().any(|prefix| name.starts_with(prefix));
        judge(&case, &found, is_here, CARD);
    }
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_second_inference_gives_the_same_actions() {
    let device = device();
    let _no_grad = tch::no_grad_guard();
    cases().iter().for_each(|case| is_repeated(case, device));
}
