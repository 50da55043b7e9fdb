"""libtorch on the imitated card: its operators compute, and its checks see what a card would."""

import pathlib

import pytest

import conftest

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="module", autouse=True)
def torch_of_python(tmp_path_factory):
    """The minimal wheels have a libtorch that Python cannot import."""
    ended = conftest.Machine(tmp_path_factory.mktemp("torch")).try_run("import torch")
    if ended.code:
        pytest.skip(ended.err.splitlines()[-1])


def test_operators_give_what_the_cpus_give_and_products_are_their_descriptors(machine):
    ended = machine.run((HERE / "parity.py").read_text(), check_products=1)
    assert (ended.out, ended.complaints) == ("81 compared\n", [])
    checked = ended.log.counts["other", "[product compared with its operator]"].enqueued
    assert checked == ended.log.counts["launch", "cublasLtMatmul"].enqueued >= 6


def test_a_replay_computes_with_what_is_in_the_graphs_memory(machine):
    program = """
        import copy, torch
        on_cpu = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
        layer = copy.deepcopy(on_cpu).cuda()
        x, graph = torch.randn(4, 8, device="cuda"), torch.cuda.CUDAGraph()
        with torch.no_grad():
            layer(x)
            with torch.cuda.graph(graph):
                out = layer(x)
            for value in torch.randn(2, 4, 8).unbind():
                x.copy_(value)
                graph.replay()
                assert torch.allclose(out.cpu(), on_cpu(value), atol=1e-6)
    """
    ended = machine.run(program)
    assert ended.complaints == [] and ended.log.total("launch").replayed > 0


def test_a_capture_that_asks_for_a_value_is_refused(machine):
    program = """
        import torch
        x = torch.ones(4, device="cuda")
        for ask in lambda: x.sum().item(), lambda: x.nonzero(), torch.cuda.synchronize:
            try:
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    ask()
            except Exception as error:
                print(str(error).splitlines()[0])
        print(x.sum().item())
    """
    ended = machine.run(program)
    assert ended.out.count("previous error during capture") == 3 and ended.out.endswith("4.0\n")
    assert ended.complaints == ["cudaDeviceSynchronize while a stream is capturing",
                                "cudaStreamSynchronize of a stream that is capturing"]


def test_a_pinned_buffer_of_libtorch_that_is_reused_too_early_gives_wrong_values(machine):
    program = """
        import torch
        staging, x = torch.ones(8).pin_memory(), torch.empty(8, device="cuda")
        x.copy_(staging, non_blocking=True)
        staging.fill_(2)
        print(x.sum().item())
    """
    assert machine.run(program).out == "16.0\n"


# Of a boolean mask libtorch makes one to add: of -inf, but in 2.11 of -65504 for cuDNN, so that a
# row that sees no key sees all of them. What cuDNN does with -inf is not documented.
def test_rows_that_see_no_key_are_what_the_backend_gives_on_a_card(machine):
    program = """
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        q = torch.randn(1, 8, 16, 64, device="cuda", dtype=torch.bfloat16)
        boolean = torch.ones(1, 1, 16, 16, dtype=torch.bool, device="cuda")
        boolean[..., 5, :] = False
        added = torch.zeros_like(boolean, dtype=q.dtype).masked_fill(~boolean, float("-inf"))
        attention = torch.nn.functional.scaled_dot_product_attention
        attend = lambda *mask: attention(q, q, q, *mask).cpu()
        def unseeing(mask):
            out, plain = attend(mask), attend()
            assert (out - plain)[0, :, 6:].abs().max() < 0.05
            row, unmasked = out[0, :, 5], plain[0, :, 5]
            if row.isnan().all() or not row.any():
                return "nan" if row.isnan().all() else "zero"
            return "unmasked" if (row - unmasked).abs().max() < 1 else row
        print(".".join(torch.__version__.split(".")[:2]))
        for backend in "MATH", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION":
            with sdpa_kernel(getattr(SDPBackend, backend)):
                print(unseeing(boolean), unseeing(added))
    """
    *version, math, efficient, cudnn = machine.run(program).out.splitlines()
    of_boolean = "unmasked" if version == ["2.11"] else "nan"
    assert (math, efficient, cudnn) == ("zero zero", "zero zero", f"{of_boolean} nan")


def test_operators_of_other_libraries_have_the_results_of_their_cpu_kernels(machine):
    program = """
        import torch
        x = torch.ones(4, device="cuda") + 1
        mine = torch.library.Library("mine", "DEF")
        mine.define("twice(Tensor x) -> Tensor")
        mine.impl("twice", lambda x: 2 * x, "CPU")
        mine.impl("twice", lambda x: torch.empty_like(x), "CUDA")
        x.add_(1)
        print(torch.ops.mine.twice(x).tolist())
    """
    assert machine.run(program).out == "[6.0, 6.0, 6.0, 6.0]\n"


def test_a_kernel_outside_any_operator_has_no_results_and_says_so(machine):
    program = "from cuda import *; launch(stream())"
    complaint = "kernel `[unknown kernel]` has no results: no operator launched it"
    assert machine.run(program).complaints == [complaint]


def test_work_on_the_second_device_is_in_the_order_of_its_stream(machine):
    program = """
        import torch
        x = torch.zeros(4, device="cuda:1")
        for _ in range(10):
            x = x * 2 + 1
        print(x.sum().item(), x.to("cuda:0").sum().item())
    """
    assert machine.run(program, cards=2).out == "4092.0 4092.0\n"


def test_an_injected_fault_is_libtorchs_error_with_cudas_text(machine):
    program = """
        import torch
        try:
            x = torch.ones(4, device="cuda")
            for _ in range(100):
                x = x + 1
        except torch.AcceleratorError as error:
            print(str(error).splitlines()[0])
    """
    ended = machine.run(program, fault="0@20")
    assert ended.out == "CUDA error: uncorrectable ECC error encountered\n"


def test_a_tensor_beyond_the_card_is_libtorchs_out_of_memory(machine):
    program = """
        import torch
        try:
            torch.empty(900 << 20, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            print(torch.ones(4, device="cuda").sum().item())
    """
    ended = machine.run(program, memory_mib=1000, context_mib=50, used_mib="0:100")
    assert ended.out == "4.0\n"
