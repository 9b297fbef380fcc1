"""Blocks from .npy and Parquet files, and copies of blocks in one .npy file."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from marginpursuit._files import atomic_stream
from marginpursuit._progress_bar import ProgressBar
from marginpursuit._validation import count
from marginpursuit.blocks._blocks import Blocks

__all__ = ["from_npy", "from_parquet", "to_npy"]


def from_npy(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    block_bytes: int = 1 << 26,
) -> Blocks:
    """Read rows from ``.npy`` files in blocks of a given size.

    Files are read, not mapped, so that processed blocks do not stay in memory.

    Parameters
    ----------
    path : path-like or sequence of path-like
        A file, a sequence of files, or a folder, whose ``.npy`` files are read in the order of
        their names.
    block_bytes : int, default=2**26
        The maximum size of a block in bytes; a block contains at least one row. At 64 MiB the
        overhead per block is small and several blocks fit in memory.

    Returns
    -------
    Blocks
        The rows of all files, concatenated.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from marginpursuit.blocks import from_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.ones((3, 2)))
    ...     np.save(f"{folder}/b.npy", np.ones((4, 2)))
    ...     from_npy(folder).shape
    (7, 2)
    """
    loaders: list[Callable[[], Any]] = []
    lengths: list[int] = []
    for file in _files(path, ".npy"):
        mapped = np.load(file, mmap_mode="r", allow_pickle=False)
        if mapped.ndim != 2:
            raise ValueError(f"{file} must contain an array of 2 dimensions; got {mapped.ndim}")
        step = max(
            1, count("block_bytes", block_bytes) // max(1, mapped.itemsize * mapped.shape[1])
        )
        for first in range(0, len(mapped), step):
            span = slice(first, min(first + step, len(mapped)))
            lengths.append(span.stop - first)
            loaders.append(partial(_read_rows, file, span))
    return Blocks(loaders, lengths)


def from_parquet(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    columns: Sequence[str] | None = None,
    target: str | None = None,
) -> Blocks:
    """Read rows from Parquet files; each row group is a block. Requires ``pyarrow``.

    Parameters
    ----------
    path : path-like or sequence of path-like
        A file, a sequence of files, or a folder, whose ``.parquet`` files are read in the order of
        their names.
    columns : sequence of str, optional
        The columns to read: one per feature, or a single column of lists of equal length. By
        default all columns except the target.
    target : str, optional
        The column of the labels, for ``labels()``.

    Returns
    -------
    Blocks
        The rows of all files, concatenated.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> import pyarrow.parquet as pq
    >>> from marginpursuit.blocks import from_parquet
    >>> table = pa.table({"size": [1.0, 2.0, 3.0], "weight": [4.0, 5.0, 6.0], "kind": [0, 1, 1]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(table, f"{folder}/pets.parquet", row_group_size=2)
    ...     blocks = from_parquet(folder, target="kind")
    ...     blocks.shape, blocks.labels().tolist()
    ((3, 2), [0, 1, 1])
    """
    import pyarrow.parquet as pq

    loaders: list[Callable[[], Any]] = []
    label_loaders: list[Callable[[], Any]] = []
    lengths: list[int] = []
    for file in _files(path, ".parquet"):
        with pq.ParquetFile(file) as parquet:
            names = [name for name in parquet.schema_arrow.names if name != target]
            chosen = names if columns is None else list(columns)
            for group in range(parquet.num_row_groups):
                lengths.append(parquet.metadata.row_group(group).num_rows)
                loaders.append(partial(_read_group, file, group, chosen))
                if target is not None:
                    label_loaders.append(partial(_read_labels, file, group, target))
    return Blocks(loaders, lengths, label_loaders)


def to_npy(
    blocks: Blocks,
    path: str | os.PathLike[str],
    *,
    dtype: DTypeLike | None = None,
) -> Blocks:
    """Copy rows to one ``.npy`` file, which is fast to read, and return its blocks.

    The file is renamed to `path` when it is complete. A terminal shows a progress bar.

    Parameters
    ----------
    blocks : Blocks
        Dense rows.
    path : path-like
        The file to write.
    dtype : dtype, optional
        The dtype of the file; by default that of the first block.

    Returns
    -------
    Blocks
        The same rows, with their labels if they have any.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from marginpursuit.blocks import Blocks, to_npy
    >>> slow = Blocks([lambda: np.zeros((2, 3)), lambda: np.ones((1, 3))])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_npy(slow, f"{folder}/fast.npy").load(0)
    array([[0., 0., 0.],
           [0., 0., 0.],
           [1., 1., 1.]])
    """
    if blocks.is_sparse:
        raise TypeError(
            "to_npy expects dense blocks; got sparse blocks. Densify them with blocks.map."
        )
    stored = None if dtype is None else np.dtype(dtype)
    with atomic_stream(path) as file, ProgressBar(f"writing {os.fspath(path)}") as progress:
        for block, _, rows in blocks.each(np.asarray):
            if stored is None:
                stored = rows.dtype
            if not file.tell():
                _write_header(file, stored, blocks.shape)
            if not np.can_cast(rows.dtype, stored, "same_kind"):
                raise TypeError(
                    f"block {block} has dtype {rows.dtype}, which cannot be stored as {stored}. "
                    "Pass a wider dtype to to_npy."
                )
            file.write(np.ascontiguousarray(rows, dtype=stored).data)
            progress(block + 1, blocks.n_blocks)
    return from_npy(path).with_labels(blocks)


def _files(path: Any, suffix: str) -> list[Path]:
    """Return the given files, or those of a folder with the suffix, by name."""
    if not isinstance(path, str | os.PathLike):
        return [Path(file) for file in path]
    folder = Path(path)
    if not folder.is_dir():
        return [folder]
    files = sorted(file for file in folder.iterdir() if file.suffix == suffix)
    if not files:
        raise FileNotFoundError(f"expected {suffix} files in {folder}; found no {suffix} file")
    return files


def _read_rows(file: Path, span: slice) -> NDArray[Any]:
    """Read a range of rows of a .npy file."""
    mapped = np.load(file, mmap_mode="r", allow_pickle=False)
    if not mapped.flags.c_contiguous:
        return np.ascontiguousarray(mapped[span])
    rows = np.empty((span.stop - span.start, mapped.shape[1]), dtype=mapped.dtype)
    unread = rows.reshape(-1).view(np.uint8).data
    with open(file, "rb", buffering=0) as opened:
        offset = mapped.offset + span.start * rows.strides[0]
        if hasattr(os, "posix_fadvise"):  # the kernel starts to read the next block as well
            os.posix_fadvise(opened.fileno(), offset, 2 * rows.nbytes, os.POSIX_FADV_WILLNEED)
        opened.seek(offset)
        while n_read := opened.readinto(unread):
            unread = unread[n_read:]
    if unread:
        raise EOFError(f"{file} ends {len(unread)} bytes before row {span.stop}. Write it again.")
    return rows


def _read_group(file: Path, group: int, columns: list[str]) -> NDArray[Any]:
    """Read a row group: columns of numbers, or one column of lists of numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        table = parquet.read_row_group(group, columns=columns)
    if missing := [name for name in columns if name not in table.column_names]:
        raise KeyError(f"{file} has no column {missing[0]!r}. Choose names of its schema.")
    only = table.column(columns[0]).combine_chunks() if len(columns) == 1 else None
    if only is None or not pa.types.is_nested(only.type):
        return np.column_stack([table.column(name).to_numpy() for name in columns])
    numbers = only.flatten().to_numpy(zero_copy_only=False)
    n_lengths = len(np.unique(np.diff(only.offsets))) if hasattr(only, "offsets") else 1
    if only.null_count or n_lengths > 1:
        raise ValueError(
            f"column {columns[0]!r} must contain lists of equal length without missing ones"
        )
    return np.asarray(numbers.reshape(len(only), -1))


def _read_labels(file: Path, group: int, target: str) -> NDArray[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        return np.asarray(parquet.read_row_group(group, columns=[target]).column(0).to_numpy())


def _write_header(file: Any, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_2_0(file, header)
