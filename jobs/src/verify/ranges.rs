//! Numbers of episodes as one reads them.

/// `episode 3 is`, `episodes 3-5, 9 are`: ascending numbers, each once.
pub fn episodes(numbers: &[u64]) -> String {
    let mut ranges: Vec<[u64; 2]> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if last[1].checked_add(1) == Some(*number) => last[1] = *number,
            _ => ranges.push([*number; 2]),
        }
    }
    let text = |[first, last]: &[u64; 2]| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let noun = if numbers.len() > 1 { "episodes" } else { "episode" };
    let verb = if numbers.len() > 1 { "are" } else { "is" };
    format!("{noun} {} {verb}", ranges.iter().map(text).collect::<Vec<_>>().join(", "))
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
