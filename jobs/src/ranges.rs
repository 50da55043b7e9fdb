//! Numbers as ranges: `0-2, 5`.

/// Returns ascending, distinct numbers as ranges of first and last number.
pub fn of(numbers: impl Iterator<Item = u64>) -> Vec<[u64; 2]> {
    let mut ranges: Vec<[u64; 2]> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if last[1].checked_add(1) == Some(number) => last[1] = number,
            _ => ranges.push([number; 2]),
        }
    }
    ranges
}

/// Formats ranges as `0-2, 5`.
pub fn text(ranges: &[[u64; 2]]) -> String {
    let one = |[first, last]: &[u64; 2]| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        let shown = |numbers: &[u64]| text(&of(numbers.iter().copied()));
        assert_eq!(shown(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(shown(&[]), "");
    }
}
