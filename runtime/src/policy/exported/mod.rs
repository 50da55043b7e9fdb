//! Runs a package of `torch.export` and AOTInductor (`.pt2`), or a TorchScript module (`script`),
//! as a policy, without Python.
//!
//! ```text
//! policy.pt2 ─► jobs::exported (metadata, checks) ─► folder (extracted) ─► CompiledPackage
//! rows ─► inputs (pictures, states, tokens, noise) ─► runner, padded ─► package ─► chunks
//!                                                                       └─ captured on a GPU
//! ```
//! The package says which inputs it reads (`rrun.inputs` in its metadata). Compiled code does not
//! check shapes, so everything is compared with the environment before the first step, and each
//! batch again when it runs.

mod folder;
mod inputs;
mod package;
mod policy;
pub(in crate::policy) mod script;

pub(in crate::policy) use policy::PackagedPolicy;

#[cfg(test)]
mod tests;
