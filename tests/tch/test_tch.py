"""No wrapper of tch that this project calls means something else than its name; see audit.py."""

from copy import deepcopy

import calls
import cpp_calls
import headers
import overloads
import pytest
import rust_calls
from audit import Verdict, audit, audit_all
from wrappers import package, read_cpp, wrappers

# Wrappers of tch 0.24.0 that do not do what their parameters say, and why. docs/gpu.md has more.
LOWER = "`training` is taken for `lower`, and stays false"
DEFECTS = {
    "_addmm_activation": "`use_gelu` is taken for `beta`: this computes ReLU",
    "_addmm_activation_out": "`use_gelu` is taken for `beta`: this computes ReLU",
    "cumulative_trapezoid": "`dim` is taken for `dx`, and stays -1",
    "range_step": "it has no `step`",
    "rrelu": LOWER,
    "rrelu_": LOWER,
    "rrelu_with_noise": LOWER,
    "rrelu_with_noise_": LOWER,
    "rrelu_with_noise_functional": LOWER,
    "rrelu_with_noise_out": LOWER,
    "trapezoid": "`dim` is taken for `dx`, and stays -1",
}


@pytest.fixture(scope="module")
def verdicts():
    return audit_all()


@pytest.fixture(scope="module")
def called():
    direct, within = calls.called()
    return direct | within


def test_no_wrapper_that_the_project_calls_is_wrong(verdicts, called):
    assert {name: verdicts[name].wrong for name in called if verdicts[name].wrong} == {}


def test_every_wrapper_that_the_project_calls_is_understood(verdicts, called):
    assert {name: verdicts[name].unclear for name in called if verdicts[name].unclear} == {}


def test_the_defects_of_the_locked_tch_are_those_listed_here(verdicts):
    wrong = {name for name, verdict in verdicts.items() if verdict.wrong}
    assert wrong == set(DEFECTS), f"tch {package('tch')[1]} differs: mend DEFECTS and docs/gpu.md"


def test_the_audit_understands_nearly_all_wrappers(verdicts):
    understood = [name for name, verdict in verdicts.items() if not verdict.unclear]
    assert len(verdicts) > 2000
    assert len(understood) > 0.99 * len(verdicts)


def test_a_reason_names_the_argument_and_the_parameter_that_it_reaches():
    assert audit(wrappers()["_addmm_activation"]).wrong == [
        "`use_gelu` (`bool`) is passed at position 4, which is `Scalar beta`"
    ]


def written(params, body):
    """What is wrong with a wrapper of this text."""
    call = f"  PROTECT(\n    auto outputs__ = {body}\n  )\n"
    text = f"void atg_f(tensor *out__, {params}) {{\n{call}}}\n"
    verdict = Verdict()
    cpp_calls.compare(read_cpp(text)["f"], verdict)
    assert verdict.unclear == []
    return verdict.wrong


RESULT = "out__[0] = new torch::Tensor(outputs__);"


def test_numbers_in_the_wrong_order_are_found():
    params = "tensor self, int64_t dim0, int64_t dim1"
    body = "torch::transpose(*self, {}, {});\n    " + RESULT
    assert written(params, body.format("dim0", "dim1")) == []
    assert written(params, body.format("dim1", "dim0")) == [
        "`dim1` (`int64_t`) is passed at position 2, which is `int64_t dim0`",
        "`dim0` (`int64_t`) is passed at position 3, which is `int64_t dim1`",
    ]


def test_a_parameter_that_is_passed_to_nothing_is_found():
    params = "tensor self, tensor other, scalar alpha"
    reasons = written(params, "torch::add(*self, *other);\n    " + RESULT)
    assert reasons == ["`alpha` is passed to nothing"]


def test_a_lost_result_is_found():
    params = "tensor self, int64_t dim, int keepdim"
    reasons = written(params, "torch::max(*self, dim, (bool)keepdim);\n    " + RESULT)
    assert reasons == ["it returns 1 of 2 tensors"]


def test_rust_arguments_in_the_wrong_order_are_found():
    wrapper = deepcopy(wrappers()["transpose"])
    wrapper.rust.args[2:] = reversed(wrapper.rust.args[2:])
    verdict = Verdict()
    rust_calls.compare(wrapper, verdict)
    assert verdict.wrong == [
        "Rust passes `dim1` for `int64_t dim0`",
        "Rust passes `dim0` for `int64_t dim1`",
    ]


@pytest.mark.parametrize(
    "function, given, operator",
    [
        ("torch::std", ["Tensor", "bool"], "std"),
        ("torch::std", ["Tensor", "optional<IntArrayRef>", "bool", "bool"], "std_dim"),
        ("torch::std", ["Tensor", "optional<IntArrayRef>", "Scalar", "bool"], "std_correction"),
        ("torch::trapezoid", ["Tensor", "Tensor", "int64_t"], "trapezoid_x"),
        ("torch::trapezoid", ["Tensor", "int64_t"], "trapezoid_dx"),
        ("torch::arange", ["Scalar", "Scalar", "TensorOptions"], "arange_start"),
        ("self->to", ["Device"], "to_dtype_layout"),
        ("self->squeeze", ["int64_t"], "squeeze_dim"),
    ],
)
def test_overloads_are_chosen_as_cpp_does(function, given, operator):
    best = overloads.chosen(headers.functions()[function], given)
    assert [function.operator for function in best] == [operator]


@pytest.mark.parametrize(
    "code, name",
    [
        ("x.relu()", "relu"),
        ("x.f_relu()?", "relu"),
        ("x.g_add_(&y)", "add_"),
        ("x.internal_addmm_activation(&a, &b, true)", "internal_addmm_activation"),
        ("x\n    .softmax(-1, kind)", "softmax"),
        ("x.layer_norm::<Tensor>([8], None, None, 1e-5, false)", "layer_norm"),
        ("Tensor::f_cat(&parts, 0)?", "cat"),
        ("xs.map(Tensor::relu)", "relu"),
    ],
)
def test_a_call_is_found_however_it_is_written(code, name):
    assert name in calls.names(code)


def test_what_a_comment_mentions_is_no_call():
    assert calls.names("// not x.relu(), see Tensor::gelu") == set()
