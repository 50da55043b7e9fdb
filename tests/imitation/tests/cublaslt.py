"""cuBLASLt through ctypes, and the same product by numpy."""

import ctypes
from dataclasses import dataclass, field

import numpy

import cuda

lt = cuda.library("libcublasLt.so")
F32, F64, F16, BF16 = 0, 1, 2, 14
DEFAULT, RELU, BIAS, GELU = 1, 2, 4, 32
INVALID_VALUE, NOT_SUPPORTED = 7, 15
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER, BIAS_TYPE = 3, 4, 7, 8, 26
ORDER, BATCHES, STRIDE = 1, 5, 6


def encode(values: numpy.ndarray, kind: int) -> numpy.ndarray:
    """The memory of a matrix, columns first, in one of the types."""
    matrices = values.reshape(-1, *values.shape[-2:])
    flat = numpy.concatenate([it.flatten(order="F") for it in matrices])
    if kind == BF16:
        return (flat.astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)
    return flat.astype({F32: numpy.float32, F64: numpy.float64, F16: numpy.float16}[kind])


def decode(raw: bytes, kind: int) -> numpy.ndarray:
    if kind == BF16:
        wide = numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16
        return wide.view(numpy.float32)
    return numpy.frombuffer(raw, {F32: numpy.float32, F64: numpy.float64, F16: numpy.float16}[kind])


def upload(values: numpy.ndarray, kind: int) -> int:
    """In device memory of its own, at once."""
    data = encode(values, kind)
    address = cuda.malloc(data.nbytes)
    cuda.call("cudaMemcpy", address, data.ctypes.data, data.nbytes, 1)
    return address


def made(function: str, *arguments) -> ctypes.c_void_p:
    out = ctypes.c_void_p()
    assert getattr(lt, function)(ctypes.byref(out), *arguments) == 0
    return out


def layout(kind: int, rows: int, columns: int, leading: int | None = None, **attributes):
    wide = map(ctypes.c_longlong, (rows, columns, leading or rows))
    out = made("cublasLtMatrixLayoutCreate", kind, *wide)
    for name, value in attributes.items():
        number = {"order": ORDER, "batches": BATCHES, "stride": STRIDE}[name]
        held = ctypes.c_longlong(value) if name == "stride" else ctypes.c_int(value)
        lt.cublasLtMatrixLayoutSetAttribute(out, number, ctypes.byref(held), ctypes.sizeof(held))
    return out


@dataclass
class Product:
    """D = epilogue(alpha op(A) op(B) + beta C + bias), of addresses and layouts."""

    a: tuple
    b: tuple
    c: tuple
    d: tuple
    alpha: float = 1
    beta: float = 0
    epilogue: int = DEFAULT
    bias: int = 0
    transposed: tuple = (False, False)
    compute: tuple = (68, F32)
    attributes: dict = field(default_factory=dict)

    def description(self):
        out = made("cublasLtMatmulDescCreate", *self.compute)
        numbers = {TRANSA: int(self.transposed[0]), TRANSB: int(self.transposed[1]),
                   EPILOGUE: self.epilogue, **self.attributes}
        held = {name: ctypes.c_int(value) for name, value in numbers.items()}
        held |= {BIAS_POINTER: ctypes.c_void_p(self.bias)}
        for name, value in held.items():
            size = ctypes.c_size_t(ctypes.sizeof(value))
            assert not lt.cublasLtMatmulDescSetAttribute(out, name, ctypes.byref(value), size)
        return out

    def ask(self, alignment: int) -> tuple[int, ctypes.Array]:
        """An algorithm for operands that are so aligned, and the status of the question."""
        preference = made("cublasLtMatmulPreferenceCreate")
        promised = ctypes.c_uint32(alignment)
        for attribute in range(5, 9):
            lt.cublasLtMatmulPreferenceSetAttribute(
                preference, attribute, ctypes.byref(promised), ctypes.c_size_t(4))
        found, count = (ctypes.c_uint64 * 12)(), ctypes.c_int()
        layouts = [operand[1] for operand in (self.a, self.b, self.c, self.d)]
        status = lt.cublasLtMatmulAlgoGetHeuristic(
            ctypes.c_void_p(1), self.description(), *layouts, preference, 1, found,
            ctypes.byref(count))
        assert count.value == (status == 0)
        return status, found

    def run(self, on: int, algorithm=None) -> int:
        """Its status."""
        scalar = ctypes.c_double if self.compute[1] == F64 else ctypes.c_float
        alpha, beta = scalar(self.alpha), scalar(self.beta)
        address = lambda operand: ctypes.c_void_p(operand[0])
        return lt.cublasLtMatmul(
            ctypes.c_void_p(1), self.description(), ctypes.byref(alpha), address(self.a), self.a[1],
            address(self.b), self.b[1], ctypes.byref(beta), address(self.c), self.c[1],
            address(self.d), self.d[1], algorithm, None, ctypes.c_size_t(0), ctypes.c_void_p(on))


def expected(a, b, c, bias, alpha: float, beta: float, epilogue: int) -> numpy.ndarray:
    out = alpha * (a @ b) + beta * c
    if epilogue & BIAS:
        out = out + bias[:, None]
    if epilogue & RELU:
        return numpy.maximum(out, 0)
    if epilogue & GELU:
        return 0.5 * out * (1 + numpy.tanh(0.7978845608 * (out + 0.044715 * out**3)))
    return out
