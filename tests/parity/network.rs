//! Compares the tensors of the network with the reference.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Arguments;
use std::rc::Rc;

use models::gr00t::model::{Gr00t, listen};
use tch::{Device, Kind, Tensor};

use crate::parity::case::{Case, cases};
use crate::parity::compare::{Tolerance, compare};
use crate::processor::files::Tensors;

/// Prefixes of tensors that the tests of processor and policy compare.
const ELSEWHERE: [&str; 3] = ["pre.", "action.", "float32.action."];

/// Ends of tensors that the network never has, because they are merged into what follows them.
const MERGED: [&str; 3] = [".temb", ".action_encoder", ".dit_out"];

/// Prefix of the results of the same rounded weights in float32.
pub const FLOAT32: &str = "float32.";

#[test]
fn every_tensor_is_the_references() {
    let _no_grad = tch::no_grad_guard();
    for case in cases() {
        let mut found = every_step(&case, &case.network(case.kind()));
        if case.expected.keys().any(|name| name.starts_with(FLOAT32)) {
            let wide = trace(&case, &case.network(Kind::Float), None).into_iter();
            found.extend(wide.map(|(name, tensor)| (format!("{FLOAT32}{name}"), tensor)));
        }
        let is_here = |name: &str| !ELSEWHERE.iter().any(|prefix| name.starts_with(prefix));
        judge(&case, &found, is_here, Tolerance::FLOAT32);
    }
}

#[test]
fn a_second_inference_gives_the_same_actions() {
    let _no_grad = tch::no_grad_guard();
    cases()
        .iter()
        .for_each(|case| is_repeated(case, Device::Cpu));
}

/// Returns the tensors that a pass shows. Each row comes from the pass with its own embodiment.
fn trace(case: &Case, network: &Gr00t, previous: Option<&Tensor>) -> Tensors {
    let rows = case.embodiments();
    let run = |&embodiment: &i64| {
        let (constants, batch) = case.ready(network, embodiment, previous);
        let seen = Rc::new(RefCell::new(Tensors::new()));
        let own = Rc::clone(&seen);
        let keep = move |name: Arguments<'_>, value: &Tensor| {
            own.borrow_mut().insert(name.to_string(), value.copy());
        };
        drop(listen(keep, || network.pass(&constants, &batch)));
        (embodiment, seen.take())
    };
    let different: BTreeSet<_> = rows.iter().collect();
    let runs: Vec<_> = different.into_iter().map(run).collect();
    let of_its_own = |name: &str| {
        let row = |(at, embodiment): (i64, &i64)| {
            let (_, seen) = runs.iter().find(|(of, _)| of == embodiment).unwrap();
            seen[name].get(at)
        };
        Tensor::stack(&(0..).zip(&rows).map(row).collect::<Vec<_>>(), 0)
    };
    let by_row = ["step", "head.state_features", "action_pred"];
    let join = |(name, tensor): (&String, &Tensor)| {
        let is_by_row = by_row.iter().any(|prefix| name.starts_with(prefix));
        let tensor = match is_by_row {
            true => of_its_own(name),
            false => tensor.shallow_clone(),
        };
        (name.clone(), tensor)
    };
    runs[0].1.iter().map(join).collect()
}

/// Returns what a case shows, and the chunk that continues another, if the case has one.
pub fn every_step(case: &Case, network: &Gr00t) -> Tensors {
    let mut found = trace(case, network, None);
    let continued = case
        .previous()
        .map(|previous| trace(case, network, Some(previous)));
    let continued = continued.into_iter().flatten();
    found.extend(continued.map(|(name, tensor)| (format!("rtc.{name}"), tensor)));
    found
}

/// Checks that two inferences give the same actions.
pub fn is_repeated(case: &Case, device: Device) {
    let network = case.network_on(device, case.kind());
    let run = || {
        let (constants, batch) = case.ready(&network, case.embodiments()[0], None);
        network.pass(&constants, &batch)
    };
    assert_eq!(run(), run(), "{}", case.name());
}

/// Compares the tensors for which `covered` holds, and that the network has; prints the largest
/// error and fails with all that are too large.
pub fn judge(case: &Case, found: &Tensors, covered: impl Fn(&str) -> bool, float32: Tolerance) {
    let (mut worst, mut count, mut problems) = ((0.0, "none"), 0, Vec::new());
    let is_merged = |name: &str| MERGED.iter().any(|end| name.ends_with(end));
    let expected = case.expected.iter();
    for (name, expected) in expected.filter(|(name, _)| covered(name) && !is_merged(name)) {
        let is_float32 = case.kind() == Kind::Float || name.starts_with(FLOAT32);
        let tolerance = match is_float32 {
            true => float32,
            false => Tolerance::bfloat16(name),
        };
        let outcome = match found.get(name) {
            Some(tensor) => compare(&tensor.to_device(Device::Cpu), expected, tolerance),
            None => Err("the network has no such tensor".to_owned()),
        };
        match outcome {
            Ok(error) if error > worst.0 => worst = (error, name),
            Ok(_) => {}
            Err(problem) => problems.push(format!("`{name}`: {problem}")),
        }
        count += 1;
    }
    let name = case.name();
    let (error, at) = worst;
    println!("{name}: {count} tensors, worst relative error {error:.1e} ({at})");
    assert!(problems.is_empty(), "{name}:\n{}", problems.join("\n"));
}
