//! What a misspelt name probably means: the most similar one of those that are known.

/// Returns the known name that resembles `found` most, if the similarity (Jaro-Winkler, from 0 to
/// 1) is above `least`. Of names that are equally similar, the first counts.
///
/// `least` depends on what a wrong suggestion costs: [`FIELD`] if the error is certain and the name
/// only helps, more if the similarity decides whether there is an error.
pub fn most_similar<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
    least: f64,
) -> Option<&'a str> {
    let (mut best, mut similarity) = (None, least);
    for name in known {
        let this = strsim::jaro_winkler(name, found);
        if this > similarity {
            (best, similarity) = (Some(name), this);
        }
    }
    best
}

/// Similarity above which a field is suggested for an unknown one.
pub const FIELD: f64 = 0.7;

/// Similarity above which a name that users choose, or one of many, is suggested.
pub const NAME: f64 = 0.85;

/// Similarity above which a name that may be somebody else's is taken for a misspelt one of ours.
pub const MISSPELT: f64 = 0.94;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_counts_and_the_first_of_equals() {
        let known = ["policy_type", "policy_args", "name"];
        assert_eq!(most_similar("polcy", known, FIELD), Some("policy_type"));
        let found = most_similar("policy_arg", known, FIELD);
        assert_eq!(found, Some("policy_args"));
        assert_eq!(most_similar("seed", known, FIELD), None);
        assert_eq!(most_similar("seed", [], FIELD), None);
    }
}
