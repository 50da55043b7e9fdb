//! The prefix of teed lines.

/// The values that a prefix template may use.
#[derive(Clone, Debug)]
pub struct PrefixNames<'a> {
    /// Value of `${role_name}`.
    pub role_name: &'a str,
    /// Value of `${local_rank}`.
    pub local_rank: usize,
    /// Value of `${rank}`.
    pub rank: usize,
    /// Value of `${hostname}`, without the domain.
    pub hostname: &'a str,
}

/// Returns the prefix of a rank's lines; `[default0]:` without a template. Substitutes `$name`,
/// `${name}` and `$$` as Python's `string.Template.safe_substitute` does; unknown names are kept.
pub fn prefix(template: Option<&str>, names: &PrefixNames<'_>) -> String {
    let Some(mut rest) = template else {
        return format!("[{}{}]:", names.role_name, names.local_rank);
    };
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once('$') {
        let dollar = after.strip_prefix('$').map(|left| ("$".to_owned(), left));
        let braced = || after.strip_prefix('{')?.split_once('}');
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let bare = after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len()));
        let filled = |(name, left)| Some((value(name, names)?, left));
        let filled = || braced().and_then(filled).or_else(|| filled(bare));
        let (text, left) = dollar.or_else(filled).unwrap_or(("$".to_owned(), after));
        out += before;
        out += &text;
        rest = left;
    }
    out + rest
}

fn value(name: &str, names: &PrefixNames<'_>) -> Option<String> {
    match name {
        "role_name" => Some(names.role_name.to_owned()),
        "local_rank" => Some(names.local_rank.to_string()),
        "rank" => Some(names.rank.to_string()),
        "hostname" => Some(names.hostname.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: PrefixNames<'_> = PrefixNames {
        role_name: "default",
        local_rank: 1,
        rank: 9,
        hostname: "node1",
    };

    #[test]
    fn without_a_template_it_is_role_and_local_rank() {
        assert_eq!(prefix(None, &NAMES), "[default1]:");
    }

    #[test]
    fn known_names_are_filled_in_and_unknown_ones_stay() {
        let template = "<${role_name}|$rank|${local_rank}|${hostname}|${nope}|$nope|$$|${|$> ";
        assert_eq!(
            prefix(Some(template), &NAMES),
            "<default|9|1|node1|${nope}|$nope|$|${|$> "
        );
    }
}
