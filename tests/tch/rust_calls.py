"""Compares the Rust functions that lead to a C wrapper with the parameters of the wrapper."""

import re

from cpp_calls import same

# How Rust declares the types of C. A list of tensors is written to or read.
TYPES = {
    "tensor": ["*mut C_tensor"],
    "tensor *": ["*mut *mut C_tensor", "*const *mut C_tensor"],
    "scalar": ["*mut C_scalar"],
    "int": ["c_int"],
    "int64_t": ["i64"],
    "int64_t *": ["*const i64"],
    "double": ["f64"],
    "double *": ["*const f64"],
    "uint8_t": ["i8"],
    "int8_t": ["i8"],
    "char*": ["*const u8"],
    "void": [""],
}
# How Rust fills a parameter of C, the types of it, and what its name has more than the one in Rust.
ARGUMENTS = {
    "X": (["int64_t", "double"], ""),
    "X.c_tensor": (["tensor"], ""),
    "X.as_ref().map_or(std::ptr::null_mut(), |t| t.borrow().c_tensor)": (["tensor"], ""),
    "X.into().c_scalar": (["scalar"], ""),
    "if X { 1 } else { 0 }": (["int"], ""),
    "X.c_int()": (["int"], ""),
    "X.into().map_or(-1, |s| s.c_int())": (["int"], ""),
    "X.0.c_int()": (["int"], "_kind"),
    "X.1.c_int()": (["int"], "_device"),
    "X.to_int()": (["int64_t"], ""),
    "X.to_i8()": (["int8_t"], ""),
    "X.map_or(-1, |s| s.to_i8())": (["int8_t"], ""),
    "X.is_none() as i8": (["uint8_t"], "_null"),
    "X.unwrap_or(0i64)": (["int64_t"], "_v"),
    "X.unwrap_or(std::f64::NAN)": (["double"], "_v"),
    "X.len_i32()": (["int"], "_len"),
    "X.len() as i32": (["int"], "_len"),
    "ptr_list(X).as_ptr()": (["tensor *"], "_data"),
    "ptr_list_opt(X).as_ptr()": (["tensor *"], "_data"),
}
POINTERS = {"char*": "_ptr", "int64_t *": "_data", "double *": "_data"}
NAME = re.compile(r"^(if |ptr_list\(|ptr_list_opt\()?(\w+)")


def compare(wrapper, verdict):
    rust = wrapper.rust
    if not rust.name:
        verdict.unclear.append("tch has no function that calls it")
        return
    verdict.wrong += declared_otherwise(wrapper)
    if len(rust.args) == len(wrapper.params):
        for text, param in zip(rust.args, wrapper.params):
            if not fills(text, param):
                verdict.wrong.append(f"Rust passes `{text}` for `{param.type} {param.name}`")
    else:
        verdict.wrong.append(f"Rust passes {len(rust.args)} of {len(wrapper.params)} arguments")
    if rust.outputs != wrapper.outputs:
        verdict.wrong.append(f"Rust has room for {rust.outputs} of {wrapper.outputs} tensors")
    if not rust.params == rust.plain_params == rust.plain_args:
        verdict.wrong.append(f"`{rust.name}` and `f_{rust.name}` differ in their parameters")


def declared_otherwise(wrapper):
    ours = [(param.type, param.name) for param in wrapper.params]
    theirs = [(param.type, param.name) for param in wrapper.rust.declared]
    alike = len(ours) == len(theirs) and wrapper.rust.returns in TYPES[wrapper.returns]
    for (type, name), (rust_type, rust_name) in zip(ours, theirs):
        alike = alike and rust_type in TYPES[type] and same(name, rust_name)
    return [] if alike else ["Rust declares it with other parameters or another result"]


def fills(text, param):
    """Whether this Rust argument is made for this C parameter."""
    if param.name == "out__":
        return text == "c_tensors.as_mut_ptr()"
    match = NAME.match(text)
    name, form = match[2], text[: match.start(2)] + "X" + text[match.end(2) :]
    if form == "X.as_ptr()":
        types, ending = [param.type], POINTERS[param.type]
    else:
        types, ending = ARGUMENTS.get(form, ([], ""))
    # A method has its first tensor as `self`, whatever libtorch calls it.
    alike = same(name + ending, param.name) or (name, param.name) == ("self", "input")
    return param.type in types and alike
