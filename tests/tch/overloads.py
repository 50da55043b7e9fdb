"""Chooses among overloads as C++ does: by the conversions that each argument would need."""

NUMBERS = ("bool", "int64_t", "double")
# Conversions through a constructor that keep the meaning.
FAITHFUL = {
    ("IntArrayRef", "OptionalIntArrayRef"),
    ("optional<IntArrayRef>", "OptionalIntArrayRef"),
    ("string", "string_view"),
    ("string", "optional<string_view>"),
    ("vector<Tensor>", "TensorList"),
    ("vector<Tensor>", "ITensorListRef"),
    ("int64_t", "SymInt"),
    ("Tensor", "TensorBase"),
    ("Device", "TensorOptions"),
}
# Those that C++ makes as well, and that are never meant.
ACCIDENTS = (
    {(number, "Scalar") for number in NUMBERS}
    | {(number, "IntArrayRef") for number in NUMBERS}
    | {(option, "TensorOptions") for option in ("ScalarType", "Layout")}
    | {("Tensor", "TensorList"), ("Tensor", "ITensorListRef")}
    | {("bool", "SymInt"), ("double", "SymInt")}
)


def cost(given, wanted):
    """0 for the same type, 1 for another number, 2 for a constructor, none where it is refused."""
    if given == wanted:
        return 0
    if given in NUMBERS and wanted in NUMBERS:
        return 1
    if (given, wanted) in FAITHFUL | ACCIDENTS:
        return 2
    if wanted.startswith("optional<") and cost(given, wanted[9:-1]) is not None:
        return 2
    return None


def is_faithful(given, wanted):
    if given == wanted or (given, wanted) in FAITHFUL:
        return True
    return wanted.startswith("optional<") and is_faithful(given, wanted[9:-1])


def chosen(overloads, given):
    """The overloads that C++ prefers for arguments of these types: one, unless it is ambiguous."""
    viable = {}
    for function in overloads:
        costs = costs_of(function, given)
        if costs is not None:
            viable[function] = costs
    return [f for f in viable if not any(beats(viable[g], viable[f]) for g in viable)]


def costs_of(function, given):
    if len(given) > len(function.params):
        return None
    if any(not param.default for param in function.params[len(given) :]):
        return None
    costs = [cost(type, param.type) for type, param in zip(given, function.params)]
    return None if None in costs else costs


def beats(costs, others):
    return costs != others and all(cost <= other for cost, other in zip(costs, others))
