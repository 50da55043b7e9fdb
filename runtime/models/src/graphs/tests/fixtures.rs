//! An engine for tests on a CPU. Its "graph" runs the pass again on the tensors that existed when
//! it was captured, and writes to the same result tensor, as CUDA's does. The tests of the crate
//! `runtime` include this file, too.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use models::graphs::{CapturedPass, Engine, Graph, Graphs};
use tch::{Device, Tensor};

/// A record of the calls.
#[derive(Debug, Default)]
pub struct Log {
    pub captures: Cell<usize>,
    pub replays: Cell<usize>,
    pub trims: Cell<usize>,
}

#[derive(Debug)]
struct ReplayEngine {
    log: Rc<Log>,
    bytes: u64,
    /// Makes capturing fail with this error.
    refuses: Option<EngineRefusal>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EngineRefusal {
    Capture,
    Panic,
    Replay,
    Lost,
}

struct Tape {
    log: Rc<Log>,
    pass: Rc<dyn Fn() -> Tensor>,
    out: RefCell<Tensor>,
    bytes: u64,
    /// Makes replays after the first fail with this message.
    breaks: Option<&'static str>,
}

impl Engine for ReplayEngine {
    fn device(&self) -> Device {
        Device::Cpu
    }

    fn capture(&self, pass: Rc<dyn Fn() -> Tensor>) -> Result<CapturedPass, String> {
        self.log.captures.set(self.log.captures.get() + 1);
        match self.refuses {
            Some(EngineRefusal::Capture) => {
                return Err("operation not permitted when stream is capturing\nmore".to_owned());
            }
            Some(EngineRefusal::Panic) => {
                panic!("{}", "CUDA error\nException raised from here".to_owned())
            }
            _ => {}
        }
        // The tensor has the right shape and is not computed yet.
        let out = pass().zeros_like();
        let tape = Tape {
            log: Rc::clone(&self.log),
            pass,
            out: RefCell::new(out.shallow_clone()),
            bytes: self.bytes,
            breaks: match self.refuses {
                Some(EngineRefusal::Replay) => Some("CUDA error: invalid resource handle"),
                Some(EngineRefusal::Lost) => {
                    Some("CUDA error: an illegal memory access was encountered")
                }
                _ => None,
            },
        };
        Ok(CapturedPass {
            graph: Box::new(tape),
            out,
        })
    }

    fn feed(&self, to: &[Tensor], from: &[Tensor]) -> Result<(), String> {
        to.iter()
            .zip(from)
            .for_each(|(to, from)| to.shallow_clone().copy_(from));
        Ok(())
    }

    fn trim(&self) {
        self.log.trims.set(self.log.trims.get() + 1);
    }
}

impl Graph for Tape {
    fn replay(&self) -> Result<(), String> {
        let replays = self.log.replays.get() + 1;
        self.log.replays.set(replays);
        if let (Some(words), true) = (self.breaks, replays > 1) {
            return Err(words.to_owned());
        }
        self.out.borrow_mut().copy_(&(self.pass)());
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

pub fn graphs(bytes: u64, cap: u64, refuses: Option<EngineRefusal>) -> (Graphs, Rc<Log>) {
    let log = Rc::new(Log::default());
    (
        Graphs::new(
            Rc::new(ReplayEngine {
                log: Rc::clone(&log),
                bytes,
                refuses,
            }),
            cap,
        ),
        log,
    )
}
