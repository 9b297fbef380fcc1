"""Get a file over HTTP: resumed where it stopped, checked, and there only when it is whole."""

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

from marginpursuit._progress_bar import Reached

__all__ = ["DownloadError", "download", "sha256_of"]

_CHUNK = 1 << 16
_ATTEMPTS = 4
_TIMEOUT = 30.0  # seconds without a byte


class DownloadError(OSError):
    """A file could not be had, or is not the one that was asked for."""


def download(
    url: str, target: Path, *, sha256: str | None, reached: Reached, pause: float = 1.0
) -> None:
    """Download `url` to `target`.

    Bytes gather in ``target.partial``, which a later call goes on from; the file gets its own name
    only once it is complete and its sum is right.

    Parameters
    ----------
    url : str
        An address that begins with http: or https:.
    target : Path
        Where to put the file; its folder is made if missing.
    sha256 : str or None
        The sum to check, where it is known.
    reached : callable
        Told the bytes so far and their total.
    pause : float, default=1.0
        Seconds before the second attempt; each further one waits twice as long.

    Raises
    ------
    DownloadError
        If the server refuses, cannot be reached or stops early, or the sum is wrong.
    """
    if not url.startswith(("http:", "https:")):
        raise ValueError(f"url must begin with http: or https:; got {url!r}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        try:
            _transfer(url, partial, reached)
            break
        except urllib.error.HTTPError as error:
            error.close()  # it is an open answer too
            if error.code < 500:  # asking again will not help
                raise DownloadError(f"{url}: {error.code} {error.reason}") from error
            failure: Exception = error
        except (OSError, http.client.HTTPException) as error:
            failure = error
    else:
        raise DownloadError(f"{url}: {failure}") from failure
    if sha256 is not None and (seen := sha256_of(partial)) != sha256:
        partial.unlink()
        raise DownloadError(f"{url}: its SHA-256 is {seen}; expected {sha256}")
    os.replace(partial, target)


def _transfer(url: str, partial: Path, reached: Reached) -> None:
    """Bring `partial` to its full length; raise if the server stops before."""
    offset = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "marginpursuit"})
    if offset:
        request.add_header("Range", f"bytes={offset}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not offset:
            raise
        error.close()
        if error.headers.get("Content-Range") == f"bytes */{offset}":
            return  # nothing is left to ask for
        partial.unlink()  # longer than the file: not a part of it
        raise ConnectionError("the part so far does not fit; starting again") from error
    with response:
        begins_there = str(response.headers.get("Content-Range")).startswith(f"bytes {offset}-")
        resumed = response.status == 206 and begins_there
        done = offset if resumed else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        with partial.open("ab" if resumed else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                reached(done, total)
    if total is not None and done != total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 sum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
