"""Streams are as late as CUDA allows, copies stay in bounds, and device memory is the device's."""

import signal

import pytest

REUSED = """
    from cuda import *
    on, device, staging = stream(), malloc(1), pinned(1, fill=1)
    copy(device, staging, 1, on)
    {between}
    ctypes.memset(staging, 2, 1)
    synchronise(on)
    print(read(device)[0])
"""


def test_a_staging_buffer_that_is_reused_too_early_gives_wrong_values(machine):
    assert machine.run(REUSED.format(between="")).out == "2\n"


def test_a_staging_buffer_that_is_waited_for_gives_its_values(machine):
    wait = "mark = event(); call('cudaEventRecord', mark, on); call('cudaEventSynchronize', mark)"
    assert machine.run(REUSED.format(between=wait)).out == "1\n"


def test_an_eager_stream_hides_the_mistake(machine):
    assert machine.run(REUSED.format(between=""), eager=1).out == "1\n"


def test_pageable_memory_is_read_at_once(machine):
    program = """
        from cuda import *
        on, device, source = stream(), malloc(1), ctypes.create_string_buffer(b"a", 1)
        copy(device, source, 1, on)
        source.raw = b"b"
        synchronise(on)
        print(read(device))
    """
    assert machine.run(program).out == "b'a'\n"


TWO_STREAMS = """
    from cuda import *
    first, second, device, out = stream(), stream(), malloc(1), pinned(1)
    mark = event()
    copy(device, pinned(1, fill=7), 1, first)
    call("cudaEventRecord", mark, first)
    {between}
    copy(out, device, 1, second)
    synchronise(second)
    print(ctypes.string_at(out, 1)[0])
"""


def test_a_stream_that_waits_for_an_event_sees_what_came_before_it(machine):
    wait = "call('cudaStreamWaitEvent', second, mark, 0)"
    assert machine.run(TWO_STREAMS.format(between=wait)).out == "7\n"


def test_a_stream_that_does_not_wait_sees_nothing(machine):
    assert machine.run(TWO_STREAMS.format(between="")).out == "0\n"


def test_the_legacy_stream_waits_for_blocking_streams_only(machine):
    program = """
        from cuda import *
        for flags in BLOCKING, NON_BLOCKING:
            device = malloc(1)
            copy(device, pinned(1, fill=7), 1, stream(flags))
            print(read(device)[0])
    """
    assert machine.run(program).out == "7\n0\n"


def test_polling_comes_to_an_end(machine):
    program = """
        from cuda import *
        on, mark = stream(), event()
        copy(malloc(1), pinned(1), 1, on)
        call("cudaEventRecord", mark, on)
        answers = []
        while not answers or answers[-1]:
            answers.append(code_of("cudaEventQuery", mark))
        copy(malloc(1), pinned(1), 1, on)
        while not answers or answers[-1] or answers.count(0) < 2:
            answers.append(code_of("cudaStreamQuery", on))
        print(sorted(set(answers)))
    """
    assert machine.run(program).out == "[0, 600]\n"


@pytest.mark.parametrize("to, source", [
    ("malloc(1)", "pinned(4 << 20)"),  # cudaMalloc takes two MiB for the one byte
    ("pinned(4 << 20)", "malloc(1)"),
    ("malloc(4 << 20)", "pinned(1)"),
])
def test_a_copy_beyond_an_allocation_is_refused(machine, to, source):
    program = f"""
        from cuda import *
        print(code_of("cudaMemcpyAsync", {to}, {source}, 4 << 20, 4, stream()))
    """
    ended = machine.run(program)
    assert (ended.out, ended.complaints) == \
        ("1\n", ["a copy leaves the memory that it was given"])


def test_a_host_that_follows_a_device_address_crashes(machine):
    program = "from cuda import *; ctypes.string_at(malloc(1), 1)"
    assert machine.try_run(program).code == -signal.SIGSEGV


def test_a_launch_on_a_stream_of_another_device_is_refused(machine):
    program = """
        from cuda import *
        on = stream()
        call("cudaSetDevice", 1)
        print(launch(on))
    """
    ended = machine.run(program, cards=2, values=0)
    assert ended.out == "400\n" and "stream of another device" in ended.complaints[0]


def test_memory_that_is_freed_and_taken_again_has_another_address(machine):
    program = """
        from cuda import *
        first = malloc(1)
        call("cudaFree", first)
        print(malloc(1) != first, code_of("cudaFree", first))
    """
    ended = machine.run(program)
    assert (ended.out, ended.complaints) == \
        ("True 1\n", ["cudaFree of what cudaMalloc did not give"])


def test_waiting_is_counted_by_how_it_waits(machine):
    program = """
        from cuda import *
        on, mark = stream(), event()
        call("cudaEventRecord", mark, on)
        call("cudaEventSynchronize", mark)
        synchronise(on)
        synchronise(on)
        call("cudaDeviceSynchronize")
    """
    log = machine.run(program).log
    waited = {name: count.enqueued for (kind, name), count in log.counts.items() if kind == "sync"}
    assert waited == \
        {"cudaEventSynchronize": 1, "cudaStreamSynchronize": 2, "cudaDeviceSynchronize": 1}
