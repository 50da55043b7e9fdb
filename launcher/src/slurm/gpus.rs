//! Counts the GPUs that SLURM gave to this process, by the variables it sets. Pure.

use crate::cli::Environment;

/// Counts the GPUs in a variable's value.
type Count = fn(&str) -> usize;

/// The number of GPUs, and the variable that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlurmGpus {
    /// Number of GPUs, at least 1.
    pub count: usize,
    /// Name of the variable: `CUDA_VISIBLE_DEVICES`, or one of SLURM's.
    pub source: &'static str,
}

impl SlurmGpus {
    /// Returns the GPUs of this task, or of the batch script. `SLURM_JOB_GPUS` is not used, because
    /// it describes the batch node on every node. `SLURM_GPUS_ON_NODE` comes last, because with
    /// `--gpus-per-task` it also counts the GPUs of the other tasks.
    pub fn read(env: &Environment) -> Option<SlurmGpus> {
        let sources: [(&str, Count); 3] = [
            ("CUDA_VISIBLE_DEVICES", devices),
            ("SLURM_STEP_GPUS", indices),
            ("SLURM_GPUS_ON_NODE", number),
        ];
        let (source, count) = sources.into_iter().find_map(|(name, count)| {
            let value = env.get(name)?.to_string_lossy().into_owned();
            Some((name, count(&value)))
        })?;
        (count > 0).then_some(SlurmGpus { count, source })
    }

    /// Returns how many devices CUDA shows this process, if the variable is set.
    pub fn visible(env: &Environment) -> Option<usize> {
        env.get("CUDA_VISIBLE_DEVICES")
            .map(|value| devices(&value.to_string_lossy()))
            .filter(|&count| count > 0)
    }
}

/// Counts the entries before the first invalid one; older versions of SLURM write `NoDevFiles` if
/// there is no GPU.
fn devices(list: &str) -> usize {
    let is_device = |item: &str| {
        item.starts_with("GPU-") || item.starts_with("MIG-") || item.parse::<u32>().is_ok()
    };
    list.split(',')
        .map(str::trim)
        .take_while(|item| is_device(item))
        .count()
}

/// Counts the indices in a list: `0,2-3` has 3.
fn indices(list: &str) -> usize {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',')
        .filter_map(count)
        .fold(0, usize::saturating_add)
}

fn number(text: &str) -> usize {
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::environment;

    #[test]
    fn what_cuda_shows_comes_first_and_hidden_gpus_do_not_count() {
        let (cuda, step) = ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS");
        let node = "SLURM_GPUS_ON_NODE";
        for (variables, wanted) in [
            (
                &[(cuda, "1"), (step, "0,1"), (node, "2")][..],
                Some((1, cuda)),
            ),
            (&[(step, "0,2-3"), (node, "2")], Some((3, step))),
            (&[(node, "4")], Some((4, node))),
            (&[(cuda, ""), (node, "2")], None),
            (&[(cuda, "NoDevFiles")], None),
            (&[("SLURM_JOB_GPUS", "0,1")], None),
        ] {
            let gpus = SlurmGpus::read(&environment(variables.iter().copied()));
            assert_eq!(
                gpus.map(|it| (it.count, it.source)),
                wanted,
                "{variables:?}"
            );
        }
    }

    #[test]
    fn devices_have_numbers_or_uuids() {
        let counts = ["0, 3", "GPU-8f,GPU-1", "MIG-5", "0,-1,2"].map(devices);
        assert_eq!(counts, [2, 2, 1, 1]);
    }
}
