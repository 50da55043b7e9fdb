//! Names of functions as people write them.

/// Longest name that is shown, in characters.
const LONGEST: usize = 120;

/// Returns the name without mangling, parameters, template arguments and a Rust hash.
pub fn readable(mangled: &str) -> String {
    let name = demangled(mangled);
    let name = without_brackets(&name);
    match name.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name,
    }
}

fn demangled(mangled: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(mangled) {
        return format!("{rust:#}");
    }
    let options = cpp_demangle::DemangleOptions::new()
        .no_params()
        .no_return_type();
    cpp_demangle::Symbol::new(mangled)
        .ok()
        .and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .unwrap_or_else(|| mangled.to_owned())
}

/// Leaves out what angle brackets enclose, except where they begin a name, as in Rust's
/// `<T as Trait>::method`, and in operators.
fn without_brackets(name: &str) -> String {
    let mut depth = 0_usize;
    let mut short = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '<' if depth > 0 || !(short.is_empty() || short.ends_with("operator")) => depth += 1,
            '>' if depth > 0 => depth -= 1,
            other if depth == 0 => short.push(other),
            _ => {}
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_names_lose_parameters_and_template_arguments() {
        let mangled = "_ZN2at6native3addIfEEvRKNS_6TensorE";
        assert_eq!(readable(mangled), "at::native::add");
    }

    #[test]
    fn rust_names_lose_their_hash() {
        let mangled = "_ZN4core3fmt5write17h0123456789abcdefE";
        assert_eq!(readable(mangled), "core::fmt::write");
    }

    #[test]
    fn other_names_stay() {
        assert_eq!(readable("__futex_abstimed_wait"), "__futex_abstimed_wait");
        assert_eq!(readable(""), "");
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!(readable(&"a".repeat(1000)).chars().count(), LONGEST + 1);
    }
}
