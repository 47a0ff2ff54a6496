"""The check of a batch's records in machine code, for those that no run of one shape helps with.

`min_time` says "all is well, and this is the least timestamp delta", or `NOT_WELL`; what is wrong, and in which
words, is `magnetar.records.check`'s to say, which looks again. Every position is checked before it is read; the bytes
may be anything.

`instructions` compiles it with numba. `magnetar.records.check_machine` has that done in a process of its own: numba and
LLVM would cost a broker 130 MB for these two thousand bytes.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import binding
from numba import types

NOT_WELL = (1 << 63) - 1
_FAR, _NONE_YET = -(1 << 62), 1 << 62  # as in `check`
_MAX_WIDTH = 7
_i8 = types.int64
_BYTES = types.CPointer(types.uint8)


@numba.njit(types.UniTuple(_i8, 2)(_BYTES, _i8, _i8), error_model="numpy")  # type: ignore[untyped-decorator]
def _number(body: Any, at: Any, end: Any) -> Any:
    """Return a number of five bytes at most and where it ends, or a position below 0."""
    code: Any = 0
    for place in range(5):
        if at >= end:
            return 0, -1
        byte = np.int64(body[at])
        at += 1
        code |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (code >> 1) ^ -(code & 1), at
    return 0, -1


@numba.njit(_i8(_BYTES, _i8, _i8, _i8), error_model="numpy")  # type: ignore[untyped-decorator]
def _skip(body: Any, at: Any, end: Any, shortest: Any) -> Any:
    """Return the position behind a field of bytes, or one below 0."""
    length, at = _number(body, at, end)
    if at < 0 or length < shortest or length > end - at:
        return -1
    return at + max(length, 0)


@numba.njit(_i8(_BYTES, _i8, _i8), error_model="numpy")  # type: ignore[untyped-decorator]
def min_time(body: Any, size: Any, count: Any) -> Any:
    """Return the least timestamp delta of exactly ``count`` well-formed records, or `NOT_WELL`."""
    more: Any
    at, least = 0, _NONE_YET
    for delta in range(count):
        length, at = _number(body, at, size)
        if at < 0 or length < 6 or length > size - at:
            return NOT_WELL
        end = at + length
        at += 1  # attributes
        start, code, more = at, 0, True
        while more:
            if at >= end or at - start >= 10:
                return NOT_WELL
            byte = np.int64(body[at])
            if at - start < _MAX_WIDTH:
                code |= (byte & 0x7F) << (7 * (at - start))
            more = byte >= 0x80
            at += 1
        least = min(least, (code >> 1) ^ -(code & 1) if at - start <= _MAX_WIDTH else _FAR)
        number, at = _number(body, at, end)
        if at < 0 or number != delta:
            return NOT_WELL
        at = _skip(body, at, end, -1)
        if at < 0:
            return NOT_WELL
        at = _skip(body, at, end, -1)
        if at < 0:
            return NOT_WELL
        headers, at = _number(body, at, end)
        if at < 0 or headers < 0 or headers > end - at:
            return NOT_WELL
        for _ in range(headers):
            at = _skip(body, at, end, 0)
            if at < 0:
                return NOT_WELL
            at = _skip(body, at, end, -1)
            if at < 0:
                return NOT_WELL
        if at != end:
            return NOT_WELL
    return least if at == size else NOT_WELL


def instructions() -> bytes:
    """Return the function's instructions, which may lie anywhere; nothing if they refer to something outside.

    As numba lays functions out, it is called as
    ``int32 min_time(int64 *answer, void *, uint8 *body, int64 size, int64 count)``.
    """
    (made,) = min_time.overloads.values()
    module = binding.parse_assembly(min_time.inspect_llvm(made.signature.args))
    name = made.fndesc.llvm_func_name
    for each in (*module.functions, *module.global_variables):
        # What nobody but this function uses becomes a part of it, and what it does not use goes.
        if not each.is_declaration and each.name != name:
            each.linkage = "internal"
            if each.is_function:
                each.add_function_attribute("alwaysinline")
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=binding.get_host_cpu_name(), opt=2, reloc="pic", codemodel="small"
    )
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(module, builder)
    if [each.name for each in module.functions if not each.is_declaration] != [name]:
        return b""
    file = machine.emit_object(module)  # which the next line does not keep alive
    found = binding.ObjectFileRef.from_data(file)
    filled = {(each.name() or b"").decode(): bytes(each.data()) for each in found.sections() if each.size()}
    if any(name.startswith((".rel", ".rodata", ".data", ".bss")) for name in filled):
        return b""
    return filled[".text"]
