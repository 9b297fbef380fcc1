"""Arrays of other libraries: their functions, their devices and copies from and to NumPy.

A *device array* is an array that NumPy cannot read in place: its memory is on a GPU, or NumPy lacks
its dtype. Device arrays are processed by the functions of their own library, under the names of the
array API standard. All other arrays are read by NumPy.
"""

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _DLPackDevice(IntEnum):
    """Device types of the DLPack protocol."""

    CPU = 1
    CUDA = 2
    PINNED_HOST = 3


def is_array_api(array: Any) -> bool:
    """Whether this is an array of a library other than NumPy."""
    return hasattr(array, "__dlpack_device__") and not isinstance(array, np.ndarray | np.generic)


def is_device_array(array: Any) -> bool:
    """Whether this is an array that NumPy cannot read in place."""
    if not is_array_api(array):
        return False
    if array.__dlpack_device__()[0] not in (_DLPackDevice.CPU, _DLPackDevice.PINNED_HOST):
        return True
    try:
        np.asarray(array.detach() if _library(array) == "torch" else array)
    except (TypeError, RuntimeError):
        return True
    return False


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array or data frame; Dask itself is not imported.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.blocks import is_dask
    >>> is_dask(np.ones((2, 2)))
    False
    """
    return type(X).__module__.partition(".")[0] == "dask"


def as_torch(array: Any) -> Any:
    """Return a CUDA array as a torch tensor that shares its memory, for the fused kernels.

    Torch tensors are detached from their graph. Arrays on other devices, and CUDA arrays where
    torch is not installed, are returned unchanged.
    """
    if _library(array) == "torch":
        return array.detach()
    if array.__dlpack_device__()[0] == _DLPackDevice.CUDA:
        try:
            import torch
        except ImportError:
            return array
        return torch.from_dlpack(array)
    return array


def namespace(array: Any) -> Any:
    """Return the array API functions of the library of an array."""
    if _library(array) == "torch":
        return _torch_namespace()
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    raise TypeError(
        f"got an array of type {type(array).__module__}.{type(array).__name__}; expected one with "
        "the functions of the array API standard. Install torch, which reads any array on a CUDA "
        "device."
    )


def dtype_name(array: Any) -> str:
    """Return the name of a dtype without that of its library."""
    return str(array.dtype).rpartition(".")[2]


def is_exact_in_float32(array: Any) -> bool:
    """Whether float32 represents every value of the array's dtype exactly."""
    names = ("bool", "uint8", "int8", "uint16", "int16", "float16", "bfloat16", "float32")
    return dtype_name(array) in names


def has_real_dtype(array: Any) -> bool:
    """Whether the dtype is boolean, integer or floating-point."""
    names = ("int32", "uint32", "int64", "uint64", "float64")
    return is_exact_in_float32(array) or dtype_name(array) in names


def to_numpy(array: Any) -> NDArray[Any]:
    """Return an array as NumPy's, copied to the host if it is a device array."""
    if _library(array) == "torch":
        array = array.detach().cpu()
        return np.asarray(array.float() if dtype_name(array) == "bfloat16" else array)
    try:
        return np.asarray(array)
    except (TypeError, RuntimeError):
        return np.from_dlpack(array, device="cpu")


def to_host(array: Any) -> Any:
    """Copy a device array to NumPy; return anything else unchanged."""
    return to_numpy(array) if is_device_array(array) else array


def to_device_of(array: Any, values: Any, dtype: Any = None) -> Any:
    """Return values of any type as an array of the library and on the device of `array`."""
    if isinstance(array, np.ndarray):
        return np.asarray(to_numpy(values), dtype=dtype)
    if type(values) is type(array) and values.device == array.device:
        return values if dtype is None else namespace(array).astype(values, dtype)
    if is_array_api(values) and values.__dlpack_device__()[0] == _DLPackDevice.CUDA:
        # DLPack also serves libraries without the functions of the standard, such as CuPy.
        return to_device_of(array, import_module(_library(array)).from_dlpack(values), dtype)
    host = np.array(to_numpy(values))  # a copy: torch may share its memory
    return namespace(array).asarray(host, dtype=dtype, device=array.device)


def _library(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


@cache
def _torch_namespace() -> Any:
    import torch

    class TorchNamespace:
        """Torch under the names of the standard, where the two differ."""

        unique_values = staticmethod(torch.unique)
        cumulative_sum = staticmethod(torch.cumsum)
        max, min = staticmethod(torch.amax), staticmethod(torch.amin)

        @staticmethod
        def astype(array: Any, dtype: Any) -> Any:
            return array.to(dtype)

        @staticmethod
        def nonzero(array: Any) -> Any:
            return torch.nonzero(array, as_tuple=True)

        @staticmethod
        def sort(array: Any, *, axis: int) -> Any:
            return torch.sort(array, dim=axis).values

        @staticmethod
        def take(array: Any, indices: Any, *, axis: int) -> Any:
            return torch.index_select(array, axis, indices)

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    return TorchNamespace()
