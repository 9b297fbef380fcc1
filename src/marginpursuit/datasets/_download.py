"""Download a file over HTTP: resumable, checked by hash, and renamed only when complete."""

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from marginpursuit._progress_bar import Reached

__all__ = ["DownloadError", "download", "sha256_of"]


class DownloadError(OSError):
    """A file could not be downloaded, or has the wrong hash."""


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None,
    progress: Reached,
    attempts: int = 4,
    pause: float = 1.0,
) -> None:
    """Download an http: or https: address to a file, whose folder is created if missing.

    Bytes are written to ``target.partial``, from which a later call resumes. The file is renamed to
    `target` once it is complete and its SHA-256 hash, if known, is correct. `progress` is called
    with the bytes so far and their total. The pause before the second attempt, in seconds, doubles
    with each further attempt. Raises a DownloadError if the server refuses, cannot be reached or
    stops early, or if the hash is wrong.
    """
    if not url.startswith(("http:", "https:")):
        raise ValueError(f"url must begin with http: or https:; got {url!r}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    for attempt in range(attempts):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        try:
            _transfer(url, partial, progress)
            break
        except urllib.error.HTTPError as error:
            error.close()  # the error holds the open response
            if error.code < 500:  # a client error: a retry would fail as well
                raise DownloadError(f"{url}: {error.code} {error.reason}") from error
            failure: Exception = error
        except (OSError, http.client.HTTPException) as error:
            failure = error
    else:
        raise DownloadError(f"{url}: {failure}") from failure
    if sha256 is not None and (seen := sha256_of(partial)) != sha256:
        partial.unlink()
        raise DownloadError(f"{url}: SHA-256 is {seen}; expected {sha256}")
    os.replace(partial, target)


def _transfer(url: str, partial: Path, progress: Reached) -> None:
    """Complete `partial`; raise `OSError` if the connection ends early."""
    offset = partial.stat().st_size if partial.exists() else 0
    response = _open(url, partial, offset)
    if response is None:
        return
    with response:
        content_range = str(response.headers.get("Content-Range"))
        resumed = response.status == 206 and content_range.startswith(f"bytes {offset}-")
        done = offset if resumed else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        with partial.open("ab" if resumed else "wb") as file:
            while chunk := response.read(1 << 16):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done != total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")


def _open(url: str, partial: Path, offset: int, timeout: float = 30.0) -> Any:
    """Request the bytes from `offset` on; return None if `partial` is already complete."""
    request = urllib.request.Request(url, headers={"User-Agent": "marginpursuit"})
    if offset:
        request.add_header("Range", f"bytes={offset}-")
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not offset:  # 416: range not satisfiable
            raise
        error.close()
        if error.headers.get("Content-Range") == f"bytes */{offset}":
            return None
        partial.unlink()  # longer than the file on the server
        raise ConnectionError("the partial file is longer than the source; restarting") from error


def sha256_of(path: Path) -> str:
    """Return the SHA-256 hash of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
