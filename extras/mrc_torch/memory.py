"""The memory of a tensor as a NumPy array, without `Tensor.numpy()`.

`Tensor.numpy()` marks the tensor's storage as one that can never be resized again, also after the array is gone. FSDP
frees parameters between their uses by resizing their storages to nothing, and fails with such a mark. An array made
here keeps the tensor alive, so a collective's memory stays until the last view of it is gone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from mrc_torch.numbers import Array


class _Memory:
    """A tensor's elements in NumPy's array interface; arrays made of it hold it, and it holds the tensor."""

    def __init__(self, tensor: Tensor, count: int, dtype: np.dtype[Any]) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": (count,),
            "typestr": dtype.str,
            "version": 3,
        }


def array_of(row: Tensor, dtype: np.dtype[Any]) -> Array:
    """Return the elements of a contiguous tensor of one dimension as an array that shares its memory.

    Args:
        row: of the CPU; its type may be one that NumPy lacks.
        dtype: what the array consists of; its item size divides the tensor's bytes.

    Raises:
        ValueError: the tensor's bytes are no whole number of items.
    """
    nbytes = row.numel() * row.element_size()
    if nbytes % dtype.itemsize:
        raise ValueError(f"{nbytes} bytes of a tensor of {row.dtype} are no whole number of {dtype}")
    if nbytes == 0:
        return np.empty(0, dtype)
    found: Array = np.asarray(_Memory(row, nbytes // dtype.itemsize, dtype))
    return found
