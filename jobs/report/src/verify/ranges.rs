//! Formats episode numbers as ranges.

use jobs::ranges;

/// Formats ascending, distinct numbers as `episode 3 is` or `episodes 3-5, 9 are`.
pub fn episodes(numbers: &[u64]) -> String {
    shown(&ranges::of(numbers.iter().copied()))
}

/// Formats ranges as [`episodes`] does; they must not touch.
pub(super) fn shown(ranges: &[[u64; 2]]) -> String {
    let is_one = matches!(ranges, [[first, last]] if first == last);
    let (noun, verb) = if is_one {
        ("episode", "is")
    } else {
        ("episodes", "are")
    };
    format!("{noun} {} {verb}", ranges::text(ranges))
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
