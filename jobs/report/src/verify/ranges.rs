//! Formats episode numbers as ranges.

/// Formats ascending, distinct numbers as `episode 3 is` or `episodes 3-5, 9 are`.
pub fn episodes(numbers: &[u64]) -> String {
    shown(&of(numbers.iter().copied()))
}

/// Returns ascending, distinct numbers as ranges of first and last number.
pub(crate) fn of(numbers: impl Iterator<Item = u64>) -> Vec<[u64; 2]> {
    let mut ranges: Vec<[u64; 2]> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if last[1].checked_add(1) == Some(number) => last[1] = number,
            _ => ranges.push([number; 2]),
        }
    }
    ranges
}

/// Formats ranges as [`episodes`] does; they must not touch.
pub(super) fn shown(ranges: &[[u64; 2]]) -> String {
    let text = |[first, last]: &[u64; 2]| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    let is_one = matches!(ranges, [[first, last]] if first == last);
    let (noun, verb) = if is_one {
        ("episode", "is")
    } else {
        ("episodes", "are")
    };
    format!(
        "{noun} {} {verb}",
        ranges.iter().map(text).collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(episodes(&[3]), "episode 3 is");
        assert_eq!(episodes(&[0, 1, 2, 5, 7, 8]), "episodes 0-2, 5, 7-8 are");
    }
}
