//! The operators of a template, as functions that count what they work on.
//!
//! The engine counts steps, and one step may double a string. So each instruction that makes a value out of values is
//! replaced by a call, with the same operands, of a function that no template can name.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{Kwargs, Rest, Tuple};
use minijinja::{Environment, Error, Value, context};

use super::budget::{Budget, refuse};

/// Name and meaning of the operators, each a function of two operands or of the four of a slice.
const OPERATORS: &[&str] = &[
    "a + b", "a - b", "a * b", "a / b", "a // b", "a % b", "a ** b", "a ~ b", "a == b", "a != b", "a > b", "a >= b",
    "a < b", "a <= b", "a in b", "a[b]", "a[b:c:d]",
];
const LIST: &str = "[]";
const TUPLE: &str = "()";
const MAP: &str = "{}";
const KWARGS: &str = "**";

/// Works the operators out, on operands that were counted.
static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(Environment::empty);

/// Replaces the instructions that make values.
///
/// # Errors
/// One that cannot be counted.
pub(super) fn replace(instructions: &mut Instructions<'_>) -> Result<(), Error> {
    let mut index = 0;
    while let Some(instruction) = instructions.get_mut(index) {
        if let Some((name, operands)) = counted(instruction)? {
            let operands = u16::try_from(operands).map_err(|_| refuse("a value has too many parts"))?;
            *instruction = Instruction::CallFunction(name, Some(operands));
        }
        index += 1;
    }
    Ok(())
}

/// The function in place of an instruction, and how many operands it has; `None` for one that makes nothing.
fn counted(instruction: &Instruction<'_>) -> Result<Option<(&'static str, usize)>, Error> {
    Ok(Some(match instruction {
        Instruction::Add => ("a + b", 2),
        Instruction::Sub => ("a - b", 2),
        Instruction::Mul => ("a * b", 2),
        Instruction::Div => ("a / b", 2),
        Instruction::IntDiv => ("a // b", 2),
        Instruction::Rem => ("a % b", 2),
        Instruction::Pow => ("a ** b", 2),
        Instruction::StringConcat => ("a ~ b", 2),
        Instruction::Eq => ("a == b", 2),
        Instruction::Ne => ("a != b", 2),
        Instruction::Gt => ("a > b", 2),
        Instruction::Gte => ("a >= b", 2),
        Instruction::Lt => ("a < b", 2),
        Instruction::Lte => ("a <= b", 2),
        Instruction::In => ("a in b", 2),
        Instruction::GetItem => ("a[b]", 2),
        Instruction::Slice => ("a[b:c:d]", 4),
        Instruction::BuildList(Some(count)) => (LIST, *count),
        Instruction::BuildTuple(Some(count)) => (TUPLE, *count),
        Instruction::BuildMap(count) => (MAP, 2 * count),
        Instruction::BuildKwargs(count) => (KWARGS, 2 * count),
        Instruction::CompareAndPreserve(_) => return Err(refuse("comparisons in a row are not supported")),
        Instruction::MergeKwargs(_)
        | Instruction::UnpackLists(_)
        | Instruction::BuildList(None)
        | Instruction::BuildTuple(None) => return Err(refuse("arguments out of a list (`*`, `**`) are not supported")),
        Instruction::Include(_)
        | Instruction::CallBlock(_)
        | Instruction::LoadBlocks
        | Instruction::ExportLocals
        | Instruction::FastSuper => return Err(refuse("other templates and blocks are not supported")),
        _ => return Ok(None),
    }))
}

/// Adds the functions that [`replace`] calls.
pub(super) fn add(environment: &mut Environment<'_>, budget: &Budget) {
    for &name in OPERATORS {
        let budget = budget.clone();
        environment.add_function(name, move |operands: Rest<Value>| operate(name, &operands, &budget));
    }
    let mut constructor = |name: &'static str, make: fn(Vec<Value>) -> Result<Value, Error>| {
        let budget = budget.clone();
        environment.add_function(name, move |Rest(parts): Rest<Value>| {
            parts.iter().try_for_each(|part| budget.charge(part))?;
            make(parts)
        });
    };
    constructor(LIST, |parts| Ok(Value::from(parts)));
    constructor(TUPLE, |parts| Ok(Value::from(Tuple::from(parts))));
    constructor(MAP, |parts| Ok(Value::from_object(pairs(&parts).collect::<BTreeMap<_, _>>())));
    constructor(KWARGS, |parts| {
        let text = |key: Value| key.as_str().map(str::to_owned).ok_or_else(|| refuse("an argument has no name"));
        let named = pairs(&parts).map(|(key, value)| Ok((text(key)?, value)));
        Ok(named.collect::<Result<Vec<_>, Error>>()?.into_iter().collect::<Kwargs>().into())
    });
}

fn pairs(parts: &[Value]) -> impl Iterator<Item = (Value, Value)> {
    parts.as_chunks::<2>().0.iter().map(|[key, value]| (key.clone(), value.clone()))
}

fn operate(name: &'static str, operands: &[Value], budget: &Budget) -> Result<Value, Error> {
    let [a, b, rest @ ..] = operands else { return Err(refuse(format!("`{name}` has too few operands"))) };
    match name {
        // What is looked into is not made anew.
        "a[b]" => budget.charge(b)?,
        "a * b" if !(a.is_number() && b.is_number()) => {
            return Err(refuse("only numbers are multiplied, not text or lists"));
        }
        "a % b" if !(a.is_number() && b.is_number()) => return Err(refuse("`%` is for numbers")),
        _ => operands.iter().try_for_each(|operand| budget.charge(operand))?,
    }
    let (c, d) = (rest.first(), rest.get(1));
    let result = PLAIN.compile_expression(name)?.eval(context! { a, b, c, d })?;
    // Joined lists are lists of lists until somebody looks, and looking takes stack.
    if matches!(name, "a + b" | "a[b:c:d]") { plain(result, budget) } else { Ok(result) }
}

/// A value that is worked out now, and counted.
pub(super) fn plain(value: Value, budget: &Budget) -> Result<Value, Error> {
    use minijinja::value::ValueKind::{Iterable, Seq};
    if !matches!(value.kind(), Seq | Iterable) {
        budget.charge(&value)?;
        return Ok(value);
    }
    let mut items = Vec::new();
    for item in value.try_iter()? {
        budget.charge(&item)?;
        items.push(item);
    }
    Ok(Value::from(items))
}
