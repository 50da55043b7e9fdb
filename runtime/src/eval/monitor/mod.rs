//! What a rank tells and shows of its progress while it works, and what it learns about the others.
//!
//! ```text
//! rank ─► peers ── heartbeats ──► store ──► peers of rank 0 ─► view ─┬─► progress (terminal)
//!           ▲                                                        ├─► exporter (Prometheus)
//!           │                                                        └─► tracking (TensorBoard, …)
//!           └── meter: memory and GPU, once a second
//! ```
//! `rank` owns all of it and calls it through its observers. The rollout sees no more than a
//! [`heartbeat::Heartbeat`] and a [`stop::StopRequest`].
//!
//! * `heartbeat`: what a rank publishes; who is silent for too long.
//! * `peers`: heartbeats through the store, the barrier at the end, the end of all ranks.
//! * `pulse`: tells the launcher of this node how far the rank is.
//! * `pace`, `overview`: with thousands of ranks, who reads the heartbeats, and how often they come.
//! * `tally`: what was done before this launch. `view`: rates, time left and remarks of the run.
//! * `progress`, `exporter`: show the view to people and to Prometheus.
//! * `tracking`: logs the view to experiment trackers.
//! * `meter`: memory of the environments, and how busy the GPU is.
//! * `orders`: what a user asks on the page of the run.
//! * `stop`: whether a signal or another rank asks this one to end.

#[cfg(test)]
pub mod cable;
pub mod exporter;
pub mod heartbeat;
pub mod meter;
pub mod orders;
pub mod overview;
pub mod pace;
pub mod peers;
pub mod progress;
pub mod pulse;
pub mod reader;
pub mod stop;
pub mod tally;
pub mod tracking;
pub mod view;
