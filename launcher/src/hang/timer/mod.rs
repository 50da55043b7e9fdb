//! torch's file timer (`TORCHELASTIC_ENABLE_FILE_TIMER=1`): code in a rank says until when it has to
//! be done, and the launcher ends the rank if it is not, after it has explained what it was at.
//!
//! ```text
//! rank: timer.configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
//!       with timer.expires(after=60): …
//!            │ JSON lines
//!            ▼
//! named pipe ─► lines ─► request ─► timers ─► expired: hang report, then the signal
//! ```
//! Source: `torch/distributed/elastic/timer/file_based_local_timer.py` and
//! `torch/distributed/elastic/agent/server/local_elastic_agent.py`.

pub mod lines;
pub mod pipe;
pub mod request;
pub mod timers;
