"""What CUDA forbids while a stream captures is refused with CUDA's code, and is a complaint."""

import pytest

BEGIN = """
    import threading
    from cuda import *
    on, other, mark, graph = stream(), stream(), event(), 0
    device, host, pageable = malloc(64), pinned(64), ctypes.create_string_buffer(64)
    query = lambda function, *arguments: print(code_of(function, *arguments), end=" ")
    def elsewhere(function, *arguments):
        thread = threading.Thread(target=query, args=(function, *arguments))
        thread.start()
        thread.join()
"""

# What is done, the code that the call returns, the code of the capture's end, the complaint.
RULES = {
    "allocating": ("begin(on); query('cudaMalloc', ctypes.byref(ctypes.c_void_p()), 1)",
                   900, 901, "cudaMalloc while a stream is capturing"),
    "freeing": ("begin(on); query('cudaFree', device)",
                900, 901, "cudaFree while a stream is capturing"),
    "pinning": ("begin(on); query('cudaHostAlloc', ctypes.byref(ctypes.c_void_p()), 1, 0)",
                900, 901, "cudaHostAlloc while a stream is capturing"),
    "waiting for the device": ("begin(on); query('cudaDeviceSynchronize')",
                               900, 901, "cudaDeviceSynchronize while a stream is capturing"),
    "waiting for it": ("begin(on); query('cudaStreamSynchronize', on)",
                       900, 901, "cudaStreamSynchronize of a stream that is capturing"),
    "asking about it": ("begin(on); query('cudaStreamQuery', on)",
                        900, 901, "cudaStreamQuery of a stream that is capturing"),
    "a copy that waits": ("begin(on); query('cudaMemcpy', host, device, 64, 4)",
                          900, 901, "cudaMemcpy while a stream is capturing"),
    "a pageable copy": ("begin(on); query('cudaMemcpyAsync', device, pageable, 64, 4, on)",
                        900, 901, "a copy of pageable memory on a stream that is capturing"),
    "another thread": ("begin(on); elsewhere('cudaMalloc', ctypes.byref(ctypes.c_void_p()), 1)",
                       900, 901, "cudaMalloc while a stream is capturing"),
    "an outside event": ("call('cudaEventRecord', mark, other); begin(on);"
                         "query('cudaStreamWaitEvent', on, mark, 0)",
                         905, 901,
                         "a capturing stream waits for an event from outside the capture"),
    "its own event": ("begin(on); call('cudaEventRecord', mark, on);"
                      "query('cudaEventQuery', mark)",
                      907, 901, "cudaEventQuery of an event that was recorded in a capture"),
    "another capture": ("begin(on); begin(other); call('cudaEventRecord', mark, other);"
                        "query('cudaStreamWaitEvent', on, mark, 0)",
                        902, 901, "a capturing stream waits for an event of another capture"),
    "the legacy stream": ("on = stream(BLOCKING); begin(on); print(launch(0), end=' ')", 906, 901,
                          "`[unknown kernel]` on the legacy stream while a blocking stream is "
                          "capturing"),
    "no join": ("begin(on); call('cudaEventRecord', mark, on);"
                "query('cudaStreamWaitEvent', other, mark, 0)",
                0, 904, "a capture ends with streams that were not joined"),
    "no origin": ("begin(on); call('cudaEventRecord', mark, on);"
                  "query('cudaStreamWaitEvent', other, mark, 0); on = other",
                  0, 903, "a capture is ended on a stream that it did not begin on"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_kept(machine, rule):
    body, code, at_end, complaint = RULES[rule]
    ended = machine.run(BEGIN + f"    {body}\n    print(end_code(on))", values=0)
    assert (ended.out, ended.complaints) == (f"{code} {at_end}\n", [complaint])


def test_another_thread_cannot_end_a_capture(machine):
    program = BEGIN + """
    begin(on)
    elsewhere("cudaStreamEndCapture", on, ctypes.byref(ctypes.c_void_p()))
    print(end_code(on))
    """
    ended = machine.run(program)
    assert (ended.out, ended.complaints) == ("908 0\n", ["a capture is ended by another thread"])


@pytest.mark.parametrize("mode", ["THREAD_LOCAL", "RELAXED"])
def test_other_threads_go_on_unless_the_capture_is_global(machine, mode):
    program = BEGIN + f"""
    begin(on, {mode})
    elsewhere("cudaMalloc", ctypes.byref(ctypes.c_void_p()), 1)
    print(end_code(on))
    """
    ended = machine.run(program)
    assert (ended.out, ended.complaints) == ("0 0\n", [])


def test_a_thread_in_relaxed_mode_may_allocate_in_its_own_capture(machine):
    program = BEGIN + """
    begin(on)
    call("cudaThreadExchangeStreamCaptureMode", ctypes.byref(ctypes.c_int(RELAXED)))
    malloc(1)
    print(end_code(on))
    """
    assert machine.run(program).out == "0\n"


def test_a_launch_beside_the_capture_is_a_complaint(machine):
    program = BEGIN + """
    begin(on)
    print(launch(on), launch(other), end_code(on))
    """
    ended = machine.run(program, values=0)
    assert ended.out == "0 0 0\n" and ended.complaints == [
        "`[unknown kernel]` of a capturing thread on a stream that does not capture: "
        "the graph lacks it"]


def test_a_branch_that_is_joined_is_part_of_the_graph(machine):
    program = BEGIN + """
    back = event()
    begin(on)
    call("cudaEventRecord", mark, on)
    call("cudaStreamWaitEvent", other, mark, 0)
    launch(other)
    call("cudaEventRecord", back, other)
    call("cudaStreamWaitEvent", on, back, 0)
    graph = end(on)
    call("cudaGraphLaunch", graph, on)
    """
    ended = machine.run(program, values=0)
    count = ended.log.total("launch")
    assert (count.enqueued, count.captured, count.replayed, ended.complaints) == (0, 1, 1, [])
    assert ("graph", "1 launches, 0 copies") in ended.log.counts


FORKED = BEGIN + """
    third = stream()
    def wait(waiting, branch):
        point = event()
        call("cudaEventRecord", point, branch)
        call("cudaStreamWaitEvent", waiting, point, 0)
    begin(on)
    wait(other, on), wait(third, on)
"""


@pytest.mark.parametrize("joins, code", [
    ("wait(on, other), wait(on, third)", 0),
    ("wait(other, third), wait(on, other)", 0),  # one branch through the other
    ("wait(on, other), wait(other, third)", 904),  # too late for the origin
    ("wait(on, other), wait(on, third), launch(third)", 904),  # more work after the join
    ("wait(other, third), wait(third, other)", 904),  # only for each other
])
def test_all_work_of_all_branches_has_to_be_joined(machine, joins, code):
    ended = machine.run(FORKED + f"    {joins}\n    print(end_code(on))", values=0)
    assert ended.out == f"{code}\n"


def test_a_replay_copies_what_is_in_memory_then(machine):
    program = BEGIN + """
    begin(on)
    copy(device, host, 1, on)
    graph = end(on)
    for value in 3, 4:
        ctypes.memset(host, value, 1)
        call("cudaGraphLaunch", graph, on)
        synchronise(on)
        print(read(device)[0])
    """
    ended = machine.run(program)
    assert (ended.out, ended.complaints) == ("3\n4\n", [])
