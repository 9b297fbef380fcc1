"""Arrays of other libraries: which functions they come with, and the way to NumPy and back.

An array is *elsewhere* if NumPy cannot read it in place: on a GPU, or of a dtype that NumPy lacks.
Such arrays are worked on by the functions of their own library, under the names of the array API
standard. All others are NumPy's business.
"""

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Where DLPack says that memory is the processor's: plain and pinned.
_HOST = (1, 3)
_CUDA = 2

#: The dtypes of real numbers that float32 holds exactly, and the others.
NARROW = frozenset(("bool", "uint8", "int8", "uint16", "int16", "float16", "bfloat16", "float32"))
WIDE = frozenset(("int32", "uint32", "int64", "uint64", "float64"))


def is_foreign(array: Any) -> bool:
    """Whether this is an array of another library."""
    return hasattr(array, "__dlpack_device__") and not isinstance(array, np.ndarray | np.generic)


def is_elsewhere(array: Any) -> bool:
    """Whether an array is one that NumPy cannot read in place."""
    if not is_foreign(array):
        return False
    if array.__dlpack_device__()[0] not in _HOST:
        return True
    try:
        np.asarray(array.detach() if _library(array) == "torch" else array)
    except (TypeError, RuntimeError):
        return True
    return False


def adopted(array: Any) -> Any:
    """Return an array that is elsewhere, on a CUDA device as a torch tensor on the same memory.

    That is for the fused kernels; where torch is not installed the array stays what it is.
    """
    if _library(array) == "torch":
        return array.detach()
    if array.__dlpack_device__()[0] == _CUDA:
        try:
            import torch
        except ImportError:
            return array
        return torch.from_dlpack(array)
    return array


def namespace(array: Any) -> Any:
    """Return the functions of the array API standard for an array that is elsewhere."""
    library = _library(array)
    if library == "torch":
        return _torch_namespace()
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    raise TypeError(
        f"{type(array).__module__}.{type(array).__name__} has no functions of the array API "
        "standard; install torch, which can read it if it is on a CUDA device"
    )


def dtype_name(array: Any) -> str:
    """Return the name of a dtype without that of its library."""
    return str(array.dtype).rpartition(".")[2]


def to_numpy(array: Any) -> NDArray[Any]:
    """Return an array as NumPy's, copied from where it is if need be."""
    if _library(array) == "torch":
        array = array.detach().cpu()
        return np.asarray(array.float() if dtype_name(array) == "bfloat16" else array)
    try:
        return np.asarray(array)
    except (TypeError, RuntimeError):
        return np.from_dlpack(array, device="cpu")


def beside(array: Any, values: Any, dtype: Any = None) -> Any:
    """Return values of any kind as an array of the same library and device as another."""
    if type(values) is type(array) and values.device == array.device:
        return values if dtype is None else namespace(array).astype(values, dtype)
    if is_foreign(values) and values.__dlpack_device__()[0] == _CUDA:
        # Also for a library whose functions are not those of the standard, such as CuPy.
        return beside(array, import_module(_library(array)).from_dlpack(values), dtype)
    host = np.array(to_numpy(values))  # a copy, which torch may take over
    return namespace(array).asarray(host, dtype=dtype, device=array.device)


def _library(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


@cache
def _torch_namespace() -> Any:
    import torch

    class TorchNamespace:
        """Torch, with the few functions that it names otherwise than the standard does."""

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
