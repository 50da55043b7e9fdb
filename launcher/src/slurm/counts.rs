//! Parses SLURM's counts per node, as in `SLURM_STEP_TASKS_PER_NODE`: `3,1(x2)` is 3, 1, 1. Pure.

/// More nodes than any machine has; a list with more entries is invalid.
const MOST_NODES: usize = 1 << 16;

/// Returns the count of each node in the order of the node list, or `None` if `text` is not such a
/// list.
pub fn expand(text: &str) -> Option<Vec<usize>> {
    let mut counts = Vec::new();
    for item in text.split(',') {
        let (count, times) = match item.split_once("(x") {
            Some((count, times)) => (count, number(times.strip_suffix(')')?)?),
            None => (item, 1),
        };
        if times > MOST_NODES - counts.len() {
            return None;
        }
        counts.extend(std::iter::repeat_n(number(count)?, times));
    }
    Some(counts)
}

fn number(text: &str) -> Option<usize> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn repeated_counts_are_written_once() {
        assert_eq!(expand("3,1(x2)"), Some(vec![3, 1, 1]));
        assert_eq!(expand("2(x2)"), Some(vec![2, 2]));
        assert_eq!(expand("4"), Some(vec![4]));
    }

    #[test]
    fn what_is_no_list_of_counts_is_none() {
        for text in ["", "2,", "2(x", "2(x)", "(x2)", "2x2", "-1", "2(x99999999)"] {
            assert_eq!(expand(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn runs_are_read_back(runs in proptest::collection::vec((0_usize..300, 1_usize..9), 1..6)) {
            let text: Vec<String> = runs.iter().map(|(count, times)| format!("{count}(x{times})")).collect();
            let all: Vec<usize> = runs.iter().flat_map(|&(count, times)| std::iter::repeat_n(count, times)).collect();
            prop_assert_eq!(expand(&text.join(",")), Some(all));
        }

        #[test]
        fn any_text_is_a_list_or_none(text in "[0-9(x),]{0,16}|.{0,12}") {
            let _ = expand(&text);
        }
    }
}
