//! Expands SLURM's compressed host lists without `scontrol`, which containers lack.
//!
//! ```text
//! login,rack[0-1]n[09-10]  ─►  login rack0n09 rack0n10 rack1n09 rack1n10
//! ```
//! A name may have several groups in brackets, of which the first varies slowest; a number is
//! padded to the width of its range's low end. As with `scontrol show hostnames`, nothing may
//! follow the last bracket, duplicates stay, and the order is that of the list. Pure.

use anyhow::{Context as _, bail, ensure};

/// Most names or counts in a list; a longer list is invalid, as the largest machines have some ten thousand
/// nodes.
const MOST_HOSTS: usize = 1 << 16;

const TOO_MANY: &str = "the list has more than 65536 hosts";

const NO_PARTNER: &str = "has a bracket without its partner";

/// Returns the names in `list`, in its order.
///
/// # Errors
/// Returns an error for an invalid list, and for more than some ten thousand names.
pub fn expand(list: &str) -> anyhow::Result<Vec<String>> {
    let mut hosts = Vec::new();
    for name in names(list)? {
        hosts.extend(product(name.trim())?);
        ensure!(hosts.len() <= MOST_HOSTS, TOO_MANY);
    }
    Ok(hosts)
}

/// Splits a list at the commas outside brackets.
fn names(list: &str) -> anyhow::Result<Vec<&str>> {
    let (mut names, mut start, mut is_inside) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match (character, is_inside) {
            ('[', false) => is_inside = true,
            (']', true) => is_inside = false,
            ('[' | ']', _) => bail!("`{list}` {NO_PARTNER}"),
            (',', false) => {
                names.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    names.push(&list[start..]);
    ensure!(!is_inside, "`{list}` {NO_PARTNER}");
    Ok(names)
}

/// Returns one name with all combinations of its groups.
fn product(name: &str) -> anyhow::Result<Vec<String>> {
    let mut hosts = vec![String::new()];
    let mut rest = name;
    while let Some((text, after)) = rest.split_once('[') {
        let (group, after) = after
            .split_once(']')
            .with_context(|| format!("`{name}` {NO_PARTNER}"))?;
        let numbers = numbers(group)?;
        ensure!(hosts.len() * numbers.len() <= MOST_HOSTS, TOO_MANY);
        hosts = hosts
            .iter()
            .flat_map(|host| numbers.iter().map(move |n| format!("{host}{text}{n}")))
            .collect();
        rest = after;
    }
    match rest {
        "" if !name.is_empty() => Ok(hosts),
        _ if name.contains('[') => bail!("`{name}` has text after its last bracket"),
        text if text.is_empty() || text.contains(char::is_whitespace) => {
            bail!("`{text}` names no host where one is expected")
        }
        text => Ok(vec![text.to_owned()]),
    }
}

/// Expands `1-3,07-09` into its numbers, with their leading zeros.
fn numbers(group: &str) -> anyhow::Result<Vec<String>> {
    let mut numbers = Vec::new();
    for range in group.split(',') {
        let err = || format!("`{range}` is neither a number nor a range");
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (
            number(low).with_context(err)?,
            number(high).with_context(err)?,
        );
        let count = last.checked_sub(first).with_context(err)?;
        ensure!(count < (MOST_HOSTS - numbers.len()) as u64, TOO_MANY);
        numbers.extend((first..=last).map(|number| format!("{number:0width$}", width = low.len())));
    }
    Ok(numbers)
}

/// Returns the counts of nodes in the order of the node list, as in `SLURM_STEP_TASKS_PER_NODE`:
/// `3,1(x2)` is 3, 1, 1. Returns `None` if `text` is not such a list.
pub fn counts(text: &str) -> Option<Vec<usize>> {
    let mut counts = Vec::new();
    for item in text.split(',') {
        let (count, times) = match item.split_once("(x") {
            Some((count, times)) => (count, number(times.strip_suffix(')')?)?),
            None => (item, 1),
        };
        let times = usize::try_from(times).ok()?;
        if times > MOST_HOSTS - counts.len() {
            return None;
        }
        let count = usize::try_from(number(count)?).ok()?;
        counts.extend(std::iter::repeat_n(count, times));
    }
    Some(counts)
}

/// Parses a number that consists of digits only: no sign, no blanks.
fn number(text: &str) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_expanded_as_by_scontrol() {
        for (list, names) in [
            ("node1", "node1"),
            ("node1, login-a.example.org", "node1 login-a.example.org"),
            // Ranges and single numbers, in their order.
            ("node[3,1-2]", "node3 node1 node2"),
            ("node[1-2],gpu7,node[1]", "node1 node2 gpu7 node1"),
            // Numbers are padded to the width of the low end.
            ("n[09-11]", "n09 n10 n11"),
            ("n[998-1000]", "n998 n999 n1000"),
            ("n[001,2]", "n001 n2"),
            // Of several groups the first runs slowest.
            ("rack[0-1]n[00-01]", "rack0n00 rack0n01 rack1n00 rack1n01"),
            ("[1-2]", "1 2"),
        ] {
            assert_eq!(expand(list).expect("a list").join(" "), names, "{list}");
        }
    }

    #[test]
    fn what_scontrol_refuses_is_refused() {
        let (range, no_name) = (" is neither a number nor a range", "`` names no host");
        for (list, err) in [
            (
                "dgx[1-2]-mlx",
                "`dgx[1-2]-mlx` has text after its last bracket",
            ),
            ("n[1-3", "`n[1-3` has a bracket without its partner"),
            ("n1]", "`n1]` has a bracket without its partner"),
            ("n[3-1]", &format!("`3-1`{range}")),
            ("n[+1]", &format!("`+1`{range}")),
            ("", no_name),
            ("a,,b", no_name),
        ] {
            let told = expand(list).unwrap_err().to_string();
            assert!(told.starts_with(err), "{list}: {told}");
        }
    }

    #[test]
    fn a_list_that_would_fill_the_memory_is_refused() {
        for list in [
            "n[1-99999999]",
            "n[0-65536]",
            "a[0-999]b[0-999]",
            "n[0-65535],n[0-65535]",
        ] {
            let told = expand(list).unwrap_err().to_string();
            assert_eq!(told, TOO_MANY, "{list}");
        }
    }

    #[test]
    fn repeated_counts_are_written_once() {
        assert_eq!(counts("3,1(x2)"), Some(vec![3, 1, 1]));
        assert_eq!(counts("2(x2)"), Some(vec![2, 2]));
        assert_eq!(counts("4"), Some(vec![4]));
        for text in ["", "2,", "2(x", "2(x)", "(x2)", "2x2", "-1", "2(x99999999)"] {
            assert_eq!(counts(text), None, "{text}");
        }
    }

    /// A text and the numbers after it, as ranges `low..=high` with a width.
    fn group() -> impl Strategy<Value = (String, Vec<(u64, u64, usize)>)> {
        let range = (0_u64..1200, 0_u64..4, 1_usize..5)
            .prop_map(|(low, more, width)| (low, low + more, width));
        ("[a-z-]{1,6}", proptest::collection::vec(range, 1..4))
    }

    fn written((text, ranges): &(String, Vec<(u64, u64, usize)>)) -> String {
        let range = |(low, high, width): &(u64, u64, usize)| {
            format!("{low:0width$}-{high}", width = *width)
        };
        format!(
            "{text}[{}]",
            ranges.iter().map(range).collect::<Vec<_>>().join(",")
        )
    }

    fn meant((text, ranges): &(String, Vec<(u64, u64, usize)>)) -> Vec<String> {
        let each = |(low, high, width): &(u64, u64, usize)| {
            let width = format!("{low:0width$}", width = *width).len();
            (*low..=*high)
                .map(move |n| format!("{n:0width$}"))
                .collect::<Vec<_>>()
        };
        ranges
            .iter()
            .flat_map(each)
            .map(|n| format!("{text}{n}"))
            .collect()
    }

    proptest! {
        #[test]
        fn a_written_list_is_read_back(names in proptest::collection::vec((group(), group()), 1..4)) {
            let list: Vec<String> = names.iter().map(|(a, b)| written(a) + &written(b)).collect();
            let all = |(a, b): &(_, _)| {
                let seconds = meant(b);
                meant(a).iter().flat_map(|a| seconds.iter().map(move |b| format!("{a}{b}"))).collect::<Vec<_>>()
            };
            prop_assert_eq!(expand(&list.join(",")).unwrap(), names.iter().flat_map(all).collect::<Vec<_>>());
        }

        #[test]
        fn runs_are_read_back(runs in proptest::collection::vec((0_usize..300, 1_usize..9), 1..6)) {
            let text: Vec<_> = runs.iter().map(|(count, times)| format!("{count}(x{times})")).collect();
            let all = runs.iter().flat_map(|&(count, times)| std::iter::repeat_n(count, times));
            prop_assert_eq!(counts(&text.join(",")), Some(all.collect()));
        }

        #[test]
        fn any_text_is_a_list_of_counts_or_none(text in "[0-9(x),]{0,16}|.{0,12}") {
            let _ = counts(&text);
        }
    }
}
