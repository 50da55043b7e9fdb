"""Products that are asked of cuBLASLt outside of any operator are those of their descriptors."""

import pytest

SETUP = """
    import itertools
    from cuda import *
    from cublaslt import *
    numpy.random.seed(0)
    random = lambda *shape: decode(
        encode(numpy.random.randn(*shape), BF16).tobytes(), BF16).reshape(shape).astype(float)
    on = stream()
    m, n, k = 5, 4, 3
"""

# Of random matrices whose elements are bfloat16, so that only results are rounded.
ALL_KINDS = SETUP + """
    worst = 0
    kinds = [(F32, F32), (F16, F16), (BF16, BF16), (BF16, F32)]
    epilogues = [DEFAULT, RELU, BIAS, RELU | BIAS, GELU, GELU | BIAS]
    turned = list(itertools.product([False, True], repeat=2))
    cases = itertools.product(kinds, epilogues, turned, [(1, 0), (0.5, 1), (-2, 0.25)])
    for (kind, out), epilogue, (ta, tb), (alpha, beta) in cases:
        a, b, c, bias = random(m, k), random(k, n), random(m, n), random(m)
        A, B = (a.T if ta else a), (b.T if tb else b)
        d = malloc(256)
        product = Product(
            (upload(A, kind), layout(kind, *A.shape)), (upload(B, kind), layout(kind, *B.shape)),
            (upload(c, out), layout(out, m, n)), (d, layout(out, m, n)),
            alpha, beta, epilogue, upload(bias[:, None], out), (ta, tb))
        assert product.run(on) == 0
        synchronise(on)
        found = decode(read(d, m * n * encode(c, out).itemsize), out).reshape(n, m).T
        wanted = expected(a, b, c, bias, alpha, beta, epilogue)
        bound = {F32: 1e-5, F16: 1e-3, BF16: 8e-3}[out]
        worst = max(worst, abs(found - wanted).max() / abs(wanted).max() / bound)
    print(worst < 1, worst)
"""

# x += a Wᵀ + b, rows first as torch has them: columns first, they are turned round.
ADD_LINEAR = SETUP + """
    a, w, x, bias = random(m, k), random(n, k), random(m, n), random(n)
    A, W, X = upload(a.T, BF16), upload(w.T, BF16), upload(x.T, BF16)
    target = (X, layout(BF16, n, m))
    product = Product((W, layout(BF16, k, n)), (A, layout(BF16, k, m)), target, target, beta=1,
                      epilogue=BIAS, bias=upload(bias[:, None], BF16), transposed=(True, False))
    result = lambda: decode(read(X, 2 * m * n), BF16).reshape(m, n)
    wanted = x + a @ w.T + bias
"""


def test_every_type_epilogue_and_transpose_is_the_one_by_numpy(machine):
    ended = machine.run(ALL_KINDS)
    assert ended.out.startswith("True") and ended.complaints == [], ended.out


def test_a_linear_layer_is_added_in_place(machine):
    program = ADD_LINEAR + """
    assert product.run(on) == 0
    synchronise(on)
    print(abs(result() - wanted).max() < 0.01 * abs(wanted).max())
    """
    ended = machine.run(program)
    assert (ended.out, ended.complaints) == ("True\n", [])


def test_a_product_reads_its_operands_when_it_runs(machine):
    program = ADD_LINEAR + """
    assert product.run(on) == 0
    call("cudaMemset", W, 0, 2 * n * k)
    read(W)
    synchronise(on)
    print(abs(result() - (x + bias)).max() < 0.01 * abs(x).max())
    """
    assert machine.run(program).out == "True\n"


def test_a_replayed_product_computes_with_what_is_there_then(machine):
    program = ADD_LINEAR + """
    begin(on)
    assert product.run(on) == 0
    graph = end(on)
    for _ in range(2):
        call("cudaGraphLaunch", graph, on)
    synchronise(on)
    twice = wanted + a @ w.T + bias
    print(abs(result() - twice).max() < 0.02 * abs(twice).max())
    """
    ended = machine.run(program)
    assert ended.out == "True\n" and ended.log.total("launch").replayed == 2


def test_batches_strides_leading_dimensions_and_rows_first_are_followed(machine):
    program = SETUP + """
    a, b = random(2, m, k), random(2, n, k)  # b with rows first: [k, n] columns first is [n, k]
    space = numpy.zeros((2, m + 2, k + 1))
    space[:, :m, :k] = a
    d = malloc(4 * 2 * 100)
    product = Product(
        (upload(space, F32), layout(F32, m, k, m + 2, batches=2, stride=(m + 2) * (k + 1))),
        (upload(b, F32), layout(F32, k, n, n, order=1, batches=2, stride=k * n)),
        (d, layout(F32, m, n, m + 1, batches=2, stride=50)),
        (d, layout(F32, m, n, m + 1, batches=2, stride=50)))
    assert product.run(on) == 0
    synchronise(on)
    found = decode(read(d, 4 * 100), F32).reshape(2, 50)[:, :(m + 1) * n]
    found = found.reshape(2, n, m + 1)[:, :, :m].transpose(0, 2, 1)
    print(abs(found - a @ b.transpose(0, 2, 1)).max() < 1e-5)
    """
    ended = machine.run(program)
    assert (ended.out, ended.complaints) == ("True\n", [])


def test_without_results_a_product_is_a_launch_alone(machine):
    program = ADD_LINEAR + """
    assert product.run(on) == 0
    synchronise(on)
    print(abs(result() - x).max())
    """
    ended = machine.run(program, values=0)
    assert ended.out == "0.0\n" and ended.log.total("launch").enqueued == 1


def test_an_algorithm_is_given_for_what_can_be_computed_only(machine):
    program = ADD_LINEAR + """
    print(product.ask(16)[0])
    product.epilogue = 164
    print(product.ask(16)[0])
    product.a = (W, layout(BF16, k + 1, n))
    product.epilogue = BIAS
    print(product.ask(16)[0])
    """
    assert machine.run(program).out == "0\n15\n7\n"


def test_an_algorithm_is_refused_for_operands_that_are_less_aligned_than_promised(machine):
    program = ADD_LINEAR + """
    small, large = product.ask(2)[1], product.ask(256)[1]
    product.a = (W + 2, layout(BF16, k, n))
    print(product.run(on, small), product.run(on, large))
    """
    ended = machine.run(program)
    refused = "cublasLtMatmul is refused: A is less aligned than promised"
    assert (ended.out, ended.complaints) == ("0 7\n", [refused])


# What is changed of a product that is right, its status, and the reason in the complaint.
REFUSALS = {
    "a bias that is missing": ("product.bias = 0", 7, "the bias is a null pointer"),
    "a bias on the host": ("product.bias = pinned(64)", 7, "the bias is not device memory"),
    "shapes that do not fit": ("product.a = (W, layout(BF16, k + 1, n))", 7,
                               "op(A) is 4 x 4 and op(B) is 3 x 5"),
    "a result of another shape": ("product.d = (X, layout(BF16, m, n))", 7,
                                  "D is 5 x 4, the product is 4 x 5"),
    "a short leading dimension": ("product.b = (A, layout(BF16, k, m, k - 1))", 7,
                                  "the leading dimension of B is 2, at least 3 is needed"),
    "an odd address": ("product.a = (W + 1, layout(BF16, k, n))", 7,
                       "A is not aligned to its elements"),
    "one memory, two layouts": ("product.d = (X, layout(BF16, n, m, n + 1))", 7,
                                "C and D are the same memory in different layouts"),
    "a result over an operand": ("product.c = product.d = (A, target[1])", 7, "B and D overlap"),
    "more than was allocated": ("product.b = (A + (2 << 20) - 8, layout(BF16, k, m))", 7,
                                "B leaves its allocation"),
    "batches that differ": ("product.b = (A, layout(BF16, k, m, batches=2, stride=k * m))", 7,
                            "the numbers of batches differ"),
    "types without a kernel": ("product.b = (A, layout(F32, k, m))", 15,
                               "these types have no kernel"),
    "a bias of another type": ("product.attributes = {BIAS_TYPE: F32}", 15,
                               "the bias has another type than D"),
    "an epilogue of training": ("product.epilogue = 164", 15, "epilogue 164 is not imitated"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_wrong_product_is_refused_with_its_reason(machine, refusal):
    change, status, reason = REFUSALS[refusal]
    program = ADD_LINEAR + f"""
    {change}
    print(product.run(on))
    """
    ended = machine.run(program)
    complaint = f"cublasLtMatmul is refused: {reason}"
    assert (ended.out, ended.complaints) == (f"{status}\n", [complaint])


def test_a_product_that_differs_from_its_operators_result_is_a_complaint(machine):
    program = ADD_LINEAR + """
    enter, leave = "_ZN4card14enter_operatorEv", "_ZN4card14leave_operatorEv"
    runtime[enter]()
    assert product.run(on) == 0
    runtime[leave]()
    call("cudaMemsetAsync", X, {fill}, 2 * m * n, on)  # what the operator would compute
    synchronise(on)
    lt.imitation_check_products(ctypes.c_void_p(X))
    """
    ended = machine.run(program.replace("{fill}", "64"), check_products=1)
    assert "descriptors give another product than the operator" in ended.complaints[0]
