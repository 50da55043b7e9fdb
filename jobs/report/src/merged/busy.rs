//! Computes the share of time in which a GPU was busy.

use jobs::journal::JobEnd;

/// Returns the busy share and the seconds of a job in a rank; `None` if the GPU's driver does not
/// report it.
pub(crate) fn of_job(end: &JobEnd) -> Option<(f64, f64)> {
    Some((end.gpu_busy?, end.wall_s))
}

/// Returns the mean of shares, weighted by their seconds; `None` if there are none.
pub(crate) fn share(parts: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (busy_s, wall_s) = parts.fold((0.0, 0.0), |(busy_s, wall_s), (share, seconds)| {
        (busy_s + share * seconds, wall_s + seconds)
    });
    (wall_s > 0.0).then(|| busy_s / wall_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_job_weighs_more_and_one_that_is_not_told_of_nothing() {
        let end = |gpu_busy, wall_s| JobEnd {
            gpu_busy,
            wall_s,
            ..JobEnd::default()
        };
        let ends = [end(Some(0.5), 30.0), end(Some(0.1), 10.0), end(None, 100.0)];
        assert_eq!(share(ends.iter().filter_map(of_job)), Some(0.4));
        assert_eq!(share([].into_iter()), None);
    }
}
