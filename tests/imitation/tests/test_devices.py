"""What a process sees of the machine's cards, and the memory that processes share."""

import pytest

UUID = "GPU-{}2345678-9abc-4def-8012-3456789abc0{}"
UUIDS = [UUID.format(card + 1, card) for card in range(4)]


@pytest.mark.parametrize("visible, seen", [
    ("2,0", [2, 0]),
    ("1,9,0", [1]),  # an unknown number ends the list
    ("-1,0", []),
    ("", []),
    ("0,1,0", []),  # one that comes twice empties it
    ("3gpu,1", [3, 1]),  # read as strtol does
    (UUIDS[3], [3]),
    (f"{UUIDS[2]},{UUIDS[1]}", [2, 1]),
    ("GPU-3,GPU-12", [2, 0]),  # unique beginnings
    ("GPU-1,GPU-9,GPU-2", [0]),
    ("GPU-", []),  # the beginning of all
    ("GPU-2,GPU-22", []),
    ("GPU-2,0", [1]),
    ("0,GPU-2", [0]),
])
def test_cuda_visible_devices_is_read_as_cuda_does(machine, visible, seen):
    ended = machine.run("from cuda import *; print(bus_ids())", cards=4, visible=visible)
    assert ended.out == f"{seen}\n"


def test_a_process_without_devices_is_told_so(machine):
    program = """
        from cuda import *
        print(code_of("cudaGetDeviceCount", ctypes.byref(ctypes.c_int())),
              code_of("cudaSetDevice", 0))
    """
    assert machine.run(program, visible="").out == "100 101\n"


def test_nvml_sees_every_card_by_index_uuid_and_bus(machine):
    program = """
        from cuda import *
        nvml = library("libnvidia-ml.so")
        count, text = ctypes.c_uint(), ctypes.create_string_buffer(96)
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for card in range(count.value):
            handles = [ctypes.c_void_p() for _ in range(3)]
            nvml.nvmlDeviceGetHandleByIndex_v2(card, ctypes.byref(handles[0]))
            nvml.nvmlDeviceGetUUID(handles[0], text, 96)
            nvml.nvmlDeviceGetHandleByUUID(text, ctypes.byref(handles[1]))
            bus = f"00000000:{16 + card:02X}:00.0".encode()
            nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(handles[2]))
            print(text.value.decode(), len({handle.value for handle in handles}))
    """
    assert machine.run(program, cards=4, visible="1").out == \
        "".join(f"{uuid} 1\n" for uuid in UUIDS)


def test_an_address_and_its_device_are_those_of_cuda_not_of_the_machine(machine):
    program = """
        from cuda import *
        attributes = (ctypes.c_int * 64)()
        call("cudaSetDevice", 1)
        call("cudaPointerGetAttributes", attributes, malloc(1))
        print(list(attributes)[:2])
    """
    assert machine.run(program, cards=4, visible="3,2").out == "[2, 1]\n"


def test_processes_share_the_memory_of_a_card_until_they_end(machine):
    hold = """
        from cuda import *
        malloc(100 << 20)
        print("held", flush=True)
        input()
    """
    ask = "from cuda import *; print((memory()[1] - memory()[0]) >> 20)"
    holding = machine.start(hold, context_mib=50)
    assert holding.stdout.readline() == "held\n"
    assert machine.run(ask, context_mib=50).out == "200\n"  # its 150, and a context
    holding.communicate("\n", timeout=60)
    assert machine.run(ask, context_mib=50).out == "50\n"


def test_nvml_names_the_processes_of_a_card(machine):
    program = """
        from cuda import *
        nvml = library("libnvidia-ml.so")
        malloc(10 << 20)
        card, count, entries = ctypes.c_void_p(), ctypes.c_uint(9), (ctypes.c_ulonglong * 27)()
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card))
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), entries)
        print(count.value, entries[0] & 0xffffffff == os.getpid(), entries[1] >> 20)
    """
    assert machine.run(program, context_mib=50).out == "1 True 60\n"


def test_more_than_a_card_has_is_out_of_memory_and_harms_nothing(machine):
    program = """
        from cuda import *
        refused = code_of("cudaMalloc", ctypes.byref(ctypes.c_void_p()), 1001 << 20)
        malloc(900 << 20)
        print(refused, memory()[0] >> 20, runtime.cudaGetLastError(), runtime.cudaGetLastError())
    """
    assert machine.run(program, memory_mib=1000, context_mib=50).out == "2 50 2 0\n"


def test_another_programs_memory_is_used_on_its_card_only(machine):
    program = """
        from cuda import *
        for device in 0, 1:
            call("cudaSetDevice", device)
            print(memory()[0] >> 20)
        call("cudaSetDevice", 0)
        print(code_of("cudaMalloc", ctypes.byref(ctypes.c_void_p()), 200 << 20))
    """
    ended = machine.run(program, cards=2, memory_mib=1000, context_mib=50, used_mib="0:800")
    assert ended.out == "150\n950\n2\n"


def test_errors_have_the_names_and_texts_of_cuda(machine):
    program = """
        from cuda import *
        for code in 2, 46, 214, 700, 900, 907, 12345:
            error = [runtime.cudaGetErrorName, runtime.cudaGetErrorString]
            print(*(text(code).decode() for text in error))
    """
    assert machine.run(program).out.splitlines() == [
        "cudaErrorMemoryAllocation out of memory",
        "cudaErrorDevicesUnavailable CUDA-capable device(s) is/are busy or unavailable",
        "cudaErrorECCUncorrectable uncorrectable ECC error encountered",
        "cudaErrorIllegalAddress an illegal memory access was encountered",
        "cudaErrorStreamCaptureUnsupported operation not permitted when stream is capturing",
        "cudaErrorCapturedEvent operation not permitted on an event last recorded in a capturing "
        "stream",
        "unrecognized error code unrecognized error code",
    ]
