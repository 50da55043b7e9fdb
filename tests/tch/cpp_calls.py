"""Compares a C++ call, argument by argument, with the function of libtorch that it reaches."""

import re

import headers
import overloads

# How a wrapper writes an argument, and the type of it. `X` is what its C parameters are called.
ARGUMENTS = {
    "(bool)X": "bool",
    "torch::IntArrayRef(X_data, X_len)": "IntArrayRef",
    "at::ArrayRef<double>(X_data, X_len)": "ArrayRef<double>",
    "(X ? ::std::optional<at::Tensor>(*X) : ::std::nullopt)": "optional<Tensor>",
    "X_null ? c10::nullopt : c10::optional<double>(X_v)": "optional<double>",
    "X_null ? c10::nullopt : c10::optional<int64_t>(X_v)": "optional<int64_t>",
    "X_data == nullptr ? c10::nullopt : "
    "c10::optional<torch::IntArrayRef>(torch::IntArrayRef(X_data, X_len))": "optional<IntArrayRef>",
    "X < 0 ? c10::nullopt : "
    "c10::optional<at::ScalarType>(at::ScalarType(X))": "optional<ScalarType>",
    "(X == -1 ? c10::nullopt : "
    "c10::optional<at::Layout>(static_cast<at::Layout>(X)))": "optional<Layout>",
    "std::string(X_ptr, X_len)": "string",
    "of_carray_tensor(X_data, X_len)": "vector<Tensor>",
    "of_carray_tensor_opt(X_data, X_len)": "List<optional<Tensor>>",
    "at::device(device_of_int(X_device)).dtype(at::ScalarType(X_kind))": "TensorOptions",
    "at::ScalarType(X)": "ScalarType",
    "static_cast<at::Layout>(X)": "Layout",
    "device_of_int(X)": "Device",
}
# Those without a sign of their type: it is that of the C parameter.
BY_TYPE = {
    ("*", "tensor"): "Tensor",
    ("*", "scalar"): "Scalar",
    ("", "int64_t"): "int64_t",
    ("", "double"): "double",
}
# What tch calls otherwise than libtorch.
RENAMED = {("self_scalar", "self"), ("device", "options")}


def pattern(form):
    """`X_data, X_len` becomes `(?P<X>\\w+)_data, (?P=X)_len`."""
    first, *rest = map(re.escape, re.split(r"\bX(?=_|\b)", form))
    return re.compile(first + r"(?P<X>\w+)" + "(?P=X)".join(rest))


PATTERNS = [(pattern(form), type, re.findall(r"\bX\w*", form)) for form, type in ARGUMENTS.items()]


class Argument:
    def __init__(self, type, name, params):
        self.type = type
        self.name = name
        self.params = params  # the C parameters that it is made of


def argument(text, wrapper):
    """One argument of the call, none where it is written in a way that is new to the audit."""
    c_types = {param.name: param.type for param in wrapper.params}
    match = re.fullmatch(r"(\*?)(\w+)", text)
    if match:
        type = BY_TYPE.get((match[1], c_types.get(match[2])))
        return Argument(type, match[2], {match[2]}) if type else None
    for form, type, params in PATTERNS:
        match = form.fullmatch(text)
        if match:
            return Argument(type, match["X"], {p.replace("X", match["X"], 1) for p in params})
    return None


def compare(wrapper, verdict):
    given = [argument(text, wrapper) for text in wrapper.args]
    if None in given:
        verdict.unclear.append(f"argument `{wrapper.args[given.index(None)]}` has an unknown form")
        return
    candidates = headers.functions().get(wrapper.callee, [])
    best = overloads.chosen(candidates, [argument.type for argument in given])
    if len(best) != 1:
        verdict.unclear.append(f"{len(best)} of {len(candidates)} overloads fit `{wrapper.call}`")
        return
    verdict.reached = best[0]
    verdict.wrong += shifted(given, best[0]) + unused(given, wrapper)
    verdict.wrong += other_overload(wrapper, best[0], candidates) + lost_outputs(wrapper, best[0])


def shifted(given, function):
    """Arguments that reach a parameter of another name, or only after a conversion."""
    reasons = []
    for position, (argument, param) in enumerate(zip(given, function.params), start=1):
        alike = same(argument.name, param.name) or (argument.name, param.name) in RENAMED
        # Where there is but one parameter, nothing can shift.
        alike = alike or len(function.params) == 1
        if alike and overloads.is_faithful(argument.type, param.type):
            continue
        reasons.append(
            f"`{argument.name}` (`{argument.type}`) is passed at position {position}, "
            f"which is `{param.type} {param.name}`"
        )
    return reasons


def same(name, other):
    return normal(name) == normal(other)


def normal(name):
    return name.replace("_", "").lower()


def unused(given, wrapper):
    used = {"out__"}.union(*(argument.params for argument in given))
    if wrapper.callee.startswith("self->"):
        used.add("self")
    return [f"`{p.name}` is passed to nothing" for p in wrapper.params if p.name not in used]


def other_overload(wrapper, function, candidates):
    """Where an overload is called as the wrapper is, that one has to be reached."""
    wanted = [other for other in candidates if same(other.operator, wrapper.name)]
    if not wanted or function in wanted:
        return []
    return [f"it reaches the overload `{function.operator}` instead of `{wanted[0].operator}`"]


def lost_outputs(wrapper, function):
    """A vector comes back as a pointer, every other tensor through `out__`."""
    returned = 0 if "vector" in function.returns else function.returns.count("Tensor")
    if returned == wrapper.outputs:
        return []
    return [f"it returns {wrapper.outputs} of {returned} tensors"]
