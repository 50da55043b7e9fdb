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

/// Returns the prefix of a rank's lines; `[default0]:` without a template.
pub fn prefix(template: Option<&str>, names: &PrefixNames<'_>) -> String {
    match template {
        Some(template) => substitute(template, names),
        None => format!("[{}{}]:", names.role_name, names.local_rank),
    }
}

/// Substitutes `$name`, `${name}` and `$$` as Python's `string.Template.safe_substitute` does;
/// unknown names are kept.
fn substitute(template: &str, names: &PrefixNames<'_>) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (text, left) = placeholder(after, names);
        out.push_str(&text);
        rest = left;
    }
    out + rest
}

/// Returns the replacement of a `$` that is followed by `after`, and the rest of `after`.
fn placeholder<'a>(after: &'a str, names: &PrefixNames<'_>) -> (String, &'a str) {
    if let Some(left) = after.strip_prefix('$') {
        return ("$".to_owned(), left);
    }
    if let Some((name, left)) = after
        .strip_prefix('{')
        .and_then(|braced| braced.split_once('}'))
        && let Some(value) = value(name, names)
    {
        return (value, left);
    }
    let end = after
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(after.len());
    value(&after[..end], names)
        .map_or_else(|| ("$".to_owned(), after), |value| (value, &after[end..]))
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
