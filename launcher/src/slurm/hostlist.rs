//! Expands SLURM's compressed host lists without `scontrol`, which containers lack.
//!
//! ```text
//! login,rack[0-1]n[09-10]  ─►  login rack0n09 rack0n10 rack1n09 rack1n10
//! ```
//! A name may have several groups in brackets, of which the first varies slowest; a number is
//! padded to the width of its range's low end. As with `scontrol show hostnames`, nothing may
//! follow the last bracket, duplicates stay, and the order is that of the list. Pure.

/// Most names in a list; a longer list is invalid, as the largest machines have some ten thousand
/// nodes.
const MOST_HOSTS: usize = 1 << 16;

/// The reason why a host list cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// The list is empty, or there is no name between two commas.
    #[error("`{0}` names no host where one is expected")]
    NoName(String),
    /// A bracket is not closed or not opened, or lies within another.
    #[error("`{0}` has a bracket without its partner")]
    Bracket(String),
    /// Text follows the last bracket.
    #[error("`{0}` has text after its last bracket")]
    Suffix(String),
    /// The text in brackets is neither a number nor a range.
    #[error("`{0}` is neither a number nor a range")]
    Range(String),
    /// The list has more than [`MOST_HOSTS`] names.
    #[error("the list has more than {MOST_HOSTS} hosts")]
    TooMany,
}

/// Returns the names in `list`, in its order.
///
/// # Errors
/// Returns an error for an invalid list, see [`HostlistError`].
pub fn expand(list: &str) -> Result<Vec<String>, HostlistError> {
    let mut hosts = Vec::new();
    for name in names(list)? {
        hosts.extend(product(name.trim())?);
        if hosts.len() > MOST_HOSTS {
            return Err(HostlistError::TooMany);
        }
    }
    Ok(hosts)
}

/// Splits a list at the commas outside brackets.
fn names(list: &str) -> Result<Vec<&str>, HostlistError> {
    let (mut names, mut start, mut is_inside) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match (character, is_inside) {
            ('[', false) => is_inside = true,
            (']', true) => is_inside = false,
            ('[' | ']', _) => return Err(HostlistError::Bracket(list.to_owned())),
            (',', false) => {
                names.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    names.push(&list[start..]);
    if is_inside {
        Err(HostlistError::Bracket(list.to_owned()))
    } else {
        Ok(names)
    }
}

/// Returns one name with all combinations of its groups.
fn product(name: &str) -> Result<Vec<String>, HostlistError> {
    let mut hosts = vec![String::new()];
    let mut rest = name;
    while let Some((text, after)) = rest.split_once('[') {
        let (group, after) = after
            .split_once(']')
            .ok_or_else(|| HostlistError::Bracket(name.to_owned()))?;
        let numbers = numbers(group)?;
        if hosts.len() * numbers.len() > MOST_HOSTS {
            return Err(HostlistError::TooMany);
        }
        hosts = hosts
            .iter()
            .flat_map(|host| numbers.iter().map(move |n| format!("{host}{text}{n}")))
            .collect();
        rest = after;
    }
    match rest {
        "" if name.is_empty() => Err(HostlistError::NoName(name.to_owned())),
        "" => Ok(hosts),
        _ if name.contains('[') => Err(HostlistError::Suffix(name.to_owned())),
        text if text.contains(char::is_whitespace) => Err(HostlistError::NoName(text.to_owned())),
        text => Ok(vec![text.to_owned()]),
    }
}

/// Expands `1-3,07-09` into its numbers, with their leading zeros.
fn numbers(group: &str) -> Result<Vec<String>, HostlistError> {
    let mut numbers = Vec::new();
    for range in group.split(',') {
        let err = || HostlistError::Range(range.to_owned());
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (number(low).ok_or_else(err)?, number(high).ok_or_else(err)?);
        let count = last.checked_sub(first).ok_or_else(err)?;
        if usize::try_from(count).map_or(true, |count| numbers.len() + count >= MOST_HOSTS) {
            return Err(HostlistError::TooMany);
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}", width = low.len())));
    }
    Ok(numbers)
}

/// Parses a number that consists of digits only: no sign, no blanks.
fn number(text: &str) -> Option<u64> {
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
        let text = str::to_owned;
        for (list, err) in [
            ("dgx[1-2]-mlx", HostlistError::Suffix(text("dgx[1-2]-mlx"))),
            ("n[1-3", HostlistError::Bracket(text("n[1-3"))),
            ("n1]", HostlistError::Bracket(text("n1]"))),
            ("n[3-1]", HostlistError::Range(text("3-1"))),
            ("n[+1]", HostlistError::Range(text("+1"))),
            ("", HostlistError::NoName(String::new())),
            ("a,,b", HostlistError::NoName(String::new())),
        ] {
            assert_eq!(expand(list), Err(err), "{list}");
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
            assert_eq!(expand(list), Err(HostlistError::TooMany), "{list}");
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
    }
}
