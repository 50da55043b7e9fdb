"""CUDA through ctypes, for programs that run on the imitated cards without torch."""

import ctypes
import os

PAGEABLE_MAX = 1 << 20
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2  # cudaStreamCaptureMode
BLOCKING, NON_BLOCKING = 0, 1  # flags of a stream


def library(name: str) -> ctypes.CDLL:
    """One of the preloaded libraries, by its name without a version."""
    preloaded = os.environ["LD_PRELOAD"].split(":")
    return ctypes.CDLL(next(path for path in preloaded if os.path.basename(path).startswith(name)))


runtime = library("libcudart.so")
runtime.cudaGetErrorName.restype = runtime.cudaGetErrorString.restype = ctypes.c_char_p


class CudaError(Exception):
    def __init__(self, code: int):
        super().__init__(f"{code}: {runtime.cudaGetErrorString(code).decode()}")
        self.code = code


def code_of(function: str, *arguments) -> int:
    """What a function returns; numbers are passed with 64 bits, as pointers and sizes are."""
    wide = [ctypes.c_longlong(it) if isinstance(it, int) else it for it in arguments]
    return getattr(runtime, function)(*wide)


def call(function: str, *arguments):
    code = code_of(function, *arguments)
    if code:
        raise CudaError(code)


def made(function: str, *arguments) -> int:
    """What a function writes to its first argument."""
    out = ctypes.c_void_p()
    call(function, ctypes.byref(out), *arguments)
    return out.value


def malloc(size: int) -> int:
    return made("cudaMalloc", size)


def pinned(size: int, fill: int = 0) -> int:
    address = made("cudaHostAlloc", size, 0)
    ctypes.memset(address, fill, size)
    return address


def stream(flags: int = NON_BLOCKING) -> int:
    return made("cudaStreamCreateWithPriority", flags, 0)


def event() -> int:
    return made("cudaEventCreateWithFlags", 2)


def copy(to, source, size: int, on: int):
    call("cudaMemcpyAsync", to, source, size, 4, on)


def synchronise(on: int):
    call("cudaStreamSynchronize", on)


def read(address: int, size: int = 1) -> bytes:
    """What is in device memory, after all that the legacy stream waits for."""
    out = ctypes.create_string_buffer(size)
    call("cudaMemcpy", out, address, size, 2)
    return out.raw


def launch(on: int = 0) -> int:
    """A kernel that nobody knows; its return code."""
    return code_of("cudaLaunchKernel", 1, 1, 1, 1, 1, 0, 0, on)


def memory() -> tuple[int, int]:
    """Free and total bytes of the current device."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def device_count() -> int:
    count = ctypes.c_int()
    runtime.cudaGetDeviceCount(ctypes.byref(count))
    return count.value


def bus_ids() -> list[int]:
    """Of each visible device the machine's number of the card."""
    text = ctypes.create_string_buffer(32)
    out = []
    for device in range(device_count()):
        call("cudaDeviceGetPCIBusId", text, 32, device)
        out.append(int(text.value[5:7], 16) - 16)
    return out


def begin(on: int, mode: int = GLOBAL):
    call("cudaStreamBeginCapture", on, mode)


def end(on: int) -> int:
    """Ends a capture; an executable graph."""
    out = ctypes.c_void_p()
    call("cudaStreamEndCapture", on, ctypes.byref(out))
    return made("cudaGraphInstantiateWithFlags", out.value, 0)


def end_code(on: int) -> int:
    return code_of("cudaStreamEndCapture", on, ctypes.byref(ctypes.c_void_p()))
