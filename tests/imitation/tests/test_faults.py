"""Injected faults: sticky for the process, once on the machine."""

import pytest

LAUNCHES = """
    from cuda import *
    on = stream()
    print(*(launch(on) for _ in range(4)))
"""


@pytest.mark.parametrize("fault, codes", [
    ("0@3", "0 0 214 214\n"), ("0@2:illegal", "0 700 700 700\n"), ("1@1", "0 0 0 0\n"),
])
def test_a_card_fails_from_its_nth_launch_on(machine, fault, codes):
    assert machine.run(LAUNCHES, cards=2, values=0, fault=fault).out == codes


def test_every_later_call_of_the_process_fails_and_the_error_stays(machine):
    program = LAUNCHES + """
    out = ctypes.byref(ctypes.c_void_p())
    print(code_of("cudaMalloc", out, 1), code_of("cudaStreamSynchronize", on),
          code_of("cudaMemGetInfo", out, out), code_of("cudaDeviceSynchronize"),
          code_of("cudaHostAlloc", out, 1, 0), code_of("cudaSetDevice", 0),
          code_of("cudaGetLastError"), code_of("cudaGetLastError"))
    """
    ended = machine.run(program, values=0, fault="0@4")
    assert ended.out == "0 0 0 214\n" + " ".join(["214"] * 8) + "\n"
    assert "injected on card 0: uncorrectable ECC error encountered" in ended.err


def test_the_other_cards_of_the_process_go_on(machine):
    program = """
        from cuda import *
        for device in 0, 1:
            call("cudaSetDevice", device)
            print(launch(stream()), code_of("cudaDeviceSynchronize"))
    """
    assert machine.run(program, cards=2, values=0, fault="0@1").out == "214 214\n0 0\n"


def test_a_fault_names_the_card_of_the_machine(machine):
    run = lambda visible: machine.run(LAUNCHES, cards=2, values=0, fault="1@1", visible=visible).out
    assert (run("0"), run("1")) == ("0 0 0 0\n", "214 214 214 214\n")


def test_a_restarted_process_lives(machine):
    run = lambda: machine.run(LAUNCHES, values=0, fault="0@4").out
    assert (run(), run()) == ("0 0 0 214\n", "0 0 0 0\n")


def test_a_fault_that_is_to_stay_stays(machine):
    run = lambda: machine.run(LAUNCHES, values=0, fault="0@4:always").out
    assert (run(), run()) == ("0 0 0 214\n", "0 0 0 214\n")


def test_another_run_has_its_fault_again(machine):
    run = lambda name: machine.run(LAUNCHES, values=0, fault="0@4", fault_id=name).out
    assert (run("first"), run("second")) == ("0 0 0 214\n", "0 0 0 214\n")


def test_a_replay_counts_the_launches_of_its_graph(machine):
    program = """
        from cuda import *
        on = stream()
        begin(on)
        launch(on), launch(on), launch(on)
        graph = end(on)
        print(*(code_of("cudaGraphLaunch", graph, on) for _ in range(3)))
    """
    assert machine.run(program, values=0, fault="0@6").out == "0 214 214\n"
