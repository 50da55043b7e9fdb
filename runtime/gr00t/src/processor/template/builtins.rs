//! The filters, tests and functions that a template may use: those of the engine, with counted
//! operands.
//!
//! Left out are those that produce more than their input and are useless in a chat template:
//! `format`, `batch`, `slice`, `lipsum`, `debug`, `pprint`.

use minijinja::value::{Rest, Value, ValueOrKwargs};
use minijinja::{Environment, Error, State, filters, functions, tests};

use crate::processor::template::budget::{RenderBudget, refuse};
use crate::processor::template::operators::plain;

/// Maximum number of columns by which `indent` and `tojson` may indent.
const WIDEST: i64 = 64;

/// Returns the maximum size of a builtin's result, where it can be more than a few times the size
/// of its operands.
type Growth = fn(&[Value]) -> Result<u64, Error>;

/// Adds all builtins to the environment.
pub(super) fn add(environment: &mut Environment<'_>, budget: &RenderBudget) {
    macro_rules! add {
        ($method:ident: $($name:literal => $builtin:expr),* $(,)?) => {
            $(environment.$method($name, counted(Value::from_function($builtin), no_growth, budget));)*
        };
    }
    add! { add_filter:
        "safe" => filters::safe, "escape" => filters::escape, "e" => filters::escape, "lower" => filters::lower,
        "upper" => filters::upper, "title" => filters::title, "capitalize" => filters::capitalize,
        "length" => filters::length, "count" => filters::length, "dictsort" => filters::dictsort,
        "items" => filters::items, "reverse" => filters::reverse, "trim" => filters::trim, "split" => filters::split,
        "lines" => filters::lines, "default" => filters::default, "d" => filters::default, "abs" => filters::abs,
        "int" => filters::int, "float" => filters::float, "round" => filters::round, "attr" => filters::attr,
        "first" => filters::first, "last" => filters::last, "min" => filters::min, "max" => filters::max,
        "sort" => filters::sort, "list" => filters::list, "string" => filters::string, "bool" => filters::bool,
        "sum" => filters::sum, "select" => filters::select, "reject" => filters::reject,
        "selectattr" => filters::selectattr, "rejectattr" => filters::rejectattr, "map" => filters::map,
        "groupby" => filters::groupby, "unique" => filters::unique, "chain" => filters::chain, "zip" => filters::zip,
    }
    for (name, builtin, growth) in [
        (
            "replace",
            Value::from_function(filters::replace),
            replaced as Growth,
        ),
        ("join", Value::from_function(filters::join), joined),
        ("indent", Value::from_function(filters::indent), indented),
        ("tojson", Value::from_function(filters::tojson), indented),
    ] {
        environment.add_filter(name, counted(builtin, growth, budget));
    }
    add! { add_test:
        "undefined" => tests::is_undefined, "defined" => tests::is_defined, "none" => tests::is_none,
        "boolean" => tests::is_boolean, "odd" => tests::is_odd, "even" => tests::is_even,
        "divisibleby" => tests::is_divisibleby, "number" => tests::is_number, "integer" => tests::is_integer,
        "float" => tests::is_float, "string" => tests::is_string, "sequence" => tests::is_sequence,
        "iterable" => tests::is_iterable, "mapping" => tests::is_mapping, "startingwith" => tests::is_startingwith,
        "endingwith" => tests::is_endingwith, "lower" => tests::is_lower, "upper" => tests::is_upper,
        "sameas" => tests::is_sameas, "eq" => tests::is_eq, "equalto" => tests::is_eq, "==" => tests::is_eq,
        "ne" => tests::is_ne, "!=" => tests::is_ne, "lt" => tests::is_lt, "<" => tests::is_lt, "le" => tests::is_le,
        "<=" => tests::is_le, "gt" => tests::is_gt, ">" => tests::is_gt, "ge" => tests::is_ge, ">=" => tests::is_ge,
        "in" => tests::is_in, "true" => tests::is_true, "false" => tests::is_false,
    }
    add! { add_function: "dict" => functions::dict, "namespace" => functions::namespace }
    // A lazy sequence of numbers, which are counted when they are evaluated.
    environment.add_function("range", functions::range);
    environment.add_function("raise_exception", |text: String| -> Result<String, Error> {
        Err(refuse(text))
    });
}

/// Wraps a builtin so that its operands are counted before the call, and its result after it.
fn counted(
    builtin: Value,
    growth: Growth,
    budget: &RenderBudget,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    let budget = budget.clone();
    move |state, Rest(operands)| {
        let operands: Vec<Value> = operands.into_iter().map(Value::from).collect();
        operands
            .iter()
            .try_for_each(|operand| budget.charge(operand))?;
        budget.spend(growth(&operands)?)?;
        plain(builtin.call(state, &operands)?, &budget)
    }
}

fn no_growth(_: &[Value]) -> Result<u64, Error> {
    Ok(0)
}

/// Returns the maximum growth of a replacement: the new text in place of each letter.
fn replaced(operands: &[Value]) -> Result<u64, Error> {
    let bytes = |index: usize| {
        operands
            .get(index)
            .map_or(0, |value| value.to_string().len() as u64)
    };
    Ok((bytes(0) + 1).saturating_mul(bytes(2)))
}

/// Returns the maximum growth of a join: the separator between all items.
fn joined(operands: &[Value]) -> Result<u64, Error> {
    let items = operands.first().and_then(Value::len).unwrap_or_default() as u64;
    let between = operands
        .get(1)
        .map_or(0, |value| value.to_string().len() as u64);
    Ok(items.saturating_mul(between))
}

/// Returns the maximum growth of an indentation: blanks before each line.
fn indented(operands: &[Value]) -> Result<u64, Error> {
    let text = operands
        .first()
        .map_or(0, |value| value.to_string().len() as u64);
    let mut widest = 0;
    for operand in operands.iter().skip(1) {
        let named = ["width", "indent"]
            .map(|name| operand.get_attr(name).ok().and_then(|value| value.as_i64()));
        widest = named
            .into_iter()
            .flatten()
            .chain(operand.as_i64())
            .fold(widest, i64::max);
        if operand.is_number() && operand.as_i64().is_none() {
            widest = i64::MAX;
        }
    }
    if widest > WIDEST {
        return Err(refuse(format!(
            "expected at most {WIDEST} blanks before a line"
        )));
    }
    Ok((text + 1).saturating_mul(widest.unsigned_abs()))
}
