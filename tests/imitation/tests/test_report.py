"""What a log says is what was done."""

import subprocess
import sys

import conftest
import report

PROGRAM = """
    from cuda import *
    on = stream()
    device, host, pageable = malloc(64), pinned(64), ctypes.create_string_buffer(64)
    begin(on)
    launch(on), launch(on)
    copy(device, host, 64, on)
    graph = end(on)
    for _ in range(3):
        call("cudaGraphLaunch", graph, on)
    launch(on)
    copy(device, pageable, 64, on)
    copy(host, device, 64, on)
    synchronise(on)
"""


def test_launches_are_counted_as_given_captured_and_replayed(machine):
    log = machine.run(PROGRAM, values=0).log
    classes = {name: (it.enqueued, it.captured, it.replayed) for name, it in log.classes().items()}
    assert classes == {
        "copies: copy down, pinned": (1, 0, 0),
        "copies: copy up, pageable": (1, 0, 0),
        "copies: copy up, pinned": (0, 1, 3),
        "graphs of 2 launches, 1 copies": (1, 0, 0),
        "kernels: other": (1, 2, 6),
        "other: graph": (3, 0, 0),
        "synchronisations: cudaStreamSynchronize": (1, 0, 0),
    }


def test_host_time_between_launches_is_measured_if_asked(machine):
    log = machine.run(PROGRAM, values=0, times=1).log
    assert log.gaps == 2 and 0 < log.longest_gap_ns <= log.gap_ns


def test_a_report_with_a_complaint_fails(machine):
    machine.run("from cuda import *; code_of('cudaFree', malloc(1) + 1)")
    words = [sys.executable, conftest.IMITATION / "report.py", machine.folder / "log1"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert "complaint, 1 times: cudaFree of what cudaMalloc did not give" in done.stdout


def test_complaints_outlive_a_process_that_is_killed(machine):
    program = """
        import signal
        from cuda import *
        code_of("cudaFree", malloc(1) + 1)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = machine.try_run(program)
    assert (ended.code, len(ended.complaints)) == (-9, 1)


def test_kernels_are_known_by_their_names():
    names = {
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)": "attention",
        "cublasLtMatmul": "products",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>": "norms",
        "void at::native::vectorized_elementwise_kernel<4>": "elementwise",
        "ncclAllReduce": "collectives",
        "void at::native::reduce_kernel<512, 1>": "reductions",
    }
    found = {name: report.class_of("launch", name) for name in names}
    assert found == {name: f"kernels: {kind}" for name, kind in names.items()}
