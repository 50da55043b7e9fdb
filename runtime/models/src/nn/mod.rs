//! Layers that networks are built from.

pub(crate) mod attention;
pub(crate) mod layers;
pub(crate) mod rope;
pub(crate) mod tap;
