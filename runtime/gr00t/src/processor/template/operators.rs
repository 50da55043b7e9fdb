//! Replaces the operators of a template by functions that count the size of their operands.
//!
//! The engine counts steps, but a single step may double a string. Each instruction that computes a
//! new value is therefore replaced by a call to a function with the same operands, under a name
//! that no template can use.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{Kwargs, Rest, Tuple};
use minijinja::{Environment, Error, Value, context};

use crate::processor::template::budget::{RenderBudget, refuse};

/// Name and expression of the operators, each a function of two operands or of the four of a slice.
const OPERATORS: &[&str] = &[
    "a + b", "a - b", "a * b", "a / b", "a // b", "a % b", "a ** b", "a ~ b", "a == b", "a != b",
    "a > b", "a >= b", "a < b", "a <= b", "a in b", "a[b]", "a[b:c:d]",
];
const LIST: &str = "[]";
const TUPLE: &str = "()";
const MAP: &str = "{}";
const KWARGS: &str = "**";

/// Evaluates the operators on operands that were counted.
static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(Environment::empty);

/// Replaces the instructions that compute values.
///
/// # Errors
/// Returns an error for an instruction that cannot be counted.
pub(super) fn replace(instructions: &mut Instructions<'_>) -> Result<(), Error> {
    let mut index = 0;
    while let Some(instruction) = instructions.get_mut(index) {
        if let Some((name, operands)) = counted(instruction)? {
            let operands =
                u16::try_from(operands).map_err(|_| refuse("a value has too many parts"))?;
            *instruction = Instruction::CallFunction(name, Some(operands));
        }
        index += 1;
    }
    Ok(())
}

/// Returns the function that replaces an instruction, and its number of operands; `None` if the
/// instruction computes no value.
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
        Instruction::CompareAndPreserve(_) => {
            return Err(refuse("comparisons in a row are not supported"));
        }
        Instruction::MergeKwargs(_)
        | Instruction::UnpackLists(_)
        | Instruction::BuildList(None)
        | Instruction::BuildTuple(None) => {
            return Err(refuse(
                "arguments out of a list (`*`, `**`) are not supported",
            ));
        }
        Instruction::Include(_)
        | Instruction::CallBlock(_)
        | Instruction::LoadBlocks
        | Instruction::ExportLocals
        | Instruction::FastSuper => {
            return Err(refuse("other templates and blocks are not supported"));
        }
        _ => return Ok(None),
    }))
}

/// Adds the functions that [`replace`] calls.
pub(super) fn add(environment: &mut Environment<'_>, budget: &RenderBudget) {
    for &name in OPERATORS {
        let budget = budget.clone();
        environment.add_function(name, move |operands: Rest<Value>| {
            operate(name, &operands, &budget)
        });
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
    constructor(MAP, |parts| {
        Ok(Value::from_object(
            pairs(&parts).collect::<BTreeMap<_, _>>(),
        ))
    });
    constructor(KWARGS, |parts| {
        let text = |key: Value| {
            key.as_str()
                .map(str::to_owned)
                .ok_or_else(|| refuse("an argument has no name"))
        };
        let named = pairs(&parts).map(|(key, value)| Ok((text(key)?, value)));
        Ok(named
            .collect::<Result<Vec<_>, Error>>()?
            .into_iter()
            .collect::<Kwargs>()
            .into())
    });
}

fn pairs(parts: &[Value]) -> impl Iterator<Item = (Value, Value)> {
    parts
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[key, value]| (key.clone(), value.clone()))
}

fn operate(name: &'static str, operands: &[Value], budget: &RenderBudget) -> Result<Value, Error> {
    let [a, b, rest @ ..] = operands else {
        return Err(refuse(format!("`{name}` has too few operands")));
    };
    match name {
        // The container is only read, not copied, so it is not counted.
        "a[b]" => budget.charge(b)?,
        "a * b" if !(a.is_number() && b.is_number()) => {
            return Err(refuse("only numbers are multiplied, not text or lists"));
        }
        "a % b" if !(a.is_number() && b.is_number()) => return Err(refuse("`%` is for numbers")),
        _ => operands
            .iter()
            .try_for_each(|operand| budget.charge(operand))?,
    }
    let (c, d) = (rest.first(), rest.get(1));
    let result = PLAIN
        .compile_expression(name)?
        .eval(context! { a, b, c, d })?;
    // Joined lists are evaluated lazily as nested lists, and evaluating them takes stack.
    if matches!(name, "a + b" | "a[b:c:d]") {
        plain(result, budget)
    } else {
        Ok(result)
    }
}

/// Evaluates a value now, and counts it.
pub(super) fn plain(value: Value, budget: &RenderBudget) -> Result<Value, Error> {
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
