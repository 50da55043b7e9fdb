//! Who takes part in a gather, and what comes out of it.

/// The identity of a rank in a gather.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The rank's `RANK`.
    pub rank: usize,
    /// The number of ranks, `WORLD_SIZE`.
    pub world: usize,
    /// Number of the ranks' rendezvous round; it keeps out the parts of an earlier round.
    pub restart: u32,
    /// An id that is the same on all ranks and different for each gather that shares a store.
    pub run_id: String,
}

/// How the parts were gathered, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// There is only one rank.
    Single,
    /// Through the TCP store.
    Store,
    /// By an NCCL collective, from GPU to GPU.
    Nccl,
}

/// The result of a gather on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// Parts by rank. On rank 0, `None` for parts that did not arrive by the deadline; on other
    /// ranks, `None` for all parts but their own.
    pub parts: Vec<Option<Vec<u8>>>,
    /// How the parts were gathered.
    pub route: Route,
    /// A note for the user: which ranks are missing, why NCCL was not used, or that this rank was
    /// too late.
    pub note: Option<String>,
}
