//! Sizes of captured CUDA graphs, which the policy observes and the memory planner counts.

/// Maximum bytes of captured CUDA graphs in a process; above it, the least recently used graphs are
/// dropped.
pub const MOST_BYTES: u64 = 2 << 30;

/// The same limit as a fraction of the GPU, one part in this many; the lower limit applies.
const SHARE_OF_GPU: u64 = 16;

/// Returns the bytes that captured CUDA graphs, including their private memory pools, may take in
/// one process on a GPU with `total` bytes. A policy observes this limit, and a plan reserves that
/// much.
pub fn max_bytes(total: u64) -> u64 {
    MOST_BYTES.min(total / SHARE_OF_GPU)
}

/// Returns the batch sizes that batches of up to `rows` rows are padded to: powers of two, the
/// sizes halfway between them, and `rows`.
pub fn batch_sizes(rows: u64) -> Vec<u64> {
    let powers = (0..64).map(|exponent| 1_u64 << exponent);
    let sizes = powers
        .flat_map(|power| [power, power / 2 * 3])
        .filter(|size| *size > 0);
    let mut sizes: Vec<_> = sizes.take_while(|size| *size < rows.max(1)).collect();
    sizes.dedup();
    sizes.push(rows.max(1));
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_padded_to_a_power_of_two_or_halfway_between_two() {
        assert_eq!(batch_sizes(1), [1]);
        assert_eq!(batch_sizes(7), [1, 2, 3, 4, 6, 7]);
        assert_eq!(batch_sizes(24), [1, 2, 3, 4, 6, 8, 12, 16, 24]);
    }
}
