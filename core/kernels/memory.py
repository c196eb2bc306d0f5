"""What lies below Numba's own level: arrays by address, and hints to the cache.

Handing an array to a compiled function costs a quarter of a microsecond, and a search needs forty. So their addresses
and lengths travel in one table, and the kernel makes arrays of them again; whoever made the table keeps the arrays
alive. A search is bound by cache misses: `prefetch` asks for what will be read soon, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]  # not in its list of names
from numba.core import cgutils
from numba.extending import intrinsic

from core.jit import kernel

Table = npt.NDArray[np.uint64]


def address_table(arrays: Sequence[npt.NDArray[Any]]) -> Table:
    """Address and length of each array, all contiguous."""
    for array in arrays:
        assert array.flags.c_contiguous
        assert array.ndim == 1
    return np.array([number for array in arrays for number in (array.ctypes.data, array.size)], np.uint64)


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.uint64), generate


@kernel(inline=True)
def view_as(table: Table, number: int, length: int, dtype: Any) -> Any:
    """The bytes of the array of this number, as numbers of another type: an array's own `view` costs a call."""
    return carray(_pointer(table[2 * number]), length, dtype)


@kernel(inline=True)
def view(table: Table, number: int, dtype: Any) -> Any:
    """The array of this number in the table."""
    return view_as(table, number, np.int64(table[2 * number + 1]), dtype)


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for array[index] to be brought near; any index will do, nothing is read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        data = context.make_array(kind)(context, builder, arguments[0]).data
        pointer = builder.gep(data, [arguments[1]])
        byte = ir.IntType(8).as_pointer()
        flag = ir.IntType(32)
        hint = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag]), "llvm.prefetch.p0"
        )
        builder.call(hint, [builder.bitcast(pointer, byte), flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64 if index.signed else types.uint64), generate
