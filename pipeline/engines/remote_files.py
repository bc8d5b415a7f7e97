"""Files at `s3://` and `hf://` addresses: found, and fetched once."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fsspec.utils import glob_translate  # type: ignore[import-untyped]

from schemas.errors import ConfigError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMES = ("s3", "hf")
_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 30
_GLOB = re.compile(r"[*?\[]")
_AWS_ERROR = re.compile(r"AWS Error (\w+)")
# What no retry mends: Arrow gives each failure as OSError, the service's own code tells which.
_AWS_REFUSALS = frozenset(
    {
        "ACCESS_DENIED", "NO_SUCH_BUCKET", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH",
        "INVALID_CLIENT_TOKEN_ID", "MISSING_AUTHENTICATION_TOKEN", "UNRECOGNIZED_CLIENT",
        "INVALID_SIGNATURE", "RESOURCE_NOT_FOUND", "VALIDATION",
    }
)  # fmt: skip


def remote_files(address: str) -> tuple[str, ...]:
    """Addresses of the files at `address`, which is a file, a folder (with all below) or a glob.

    Raises:
        ConfigError: the scheme is not known, or the bucket, repository or credentials are missing.
        TransientError: the service cannot be reached.
    """
    scheme, _, path = address.partition("://")
    path = path.rstrip("/")
    is_glob = _GLOB.search(path)
    root = path[: is_glob.start()].rpartition("/")[0] if is_glob else path
    with named_errors(address):
        found = list(_LISTINGS[_known(scheme)](root))
    if is_glob:
        pattern = re.compile(glob_translate(path))
        found = [file for file in found if pattern.match(file)]
    return tuple(sorted(f"{scheme}://{file}" for file in found))


def fetch(address: str, target: Path) -> None:
    """Copies the file at `address` to `target`, in bounded memory.

    Raises:
        ConfigError: it is gone, or may not be read.
        TransientError: the service cannot be reached.
    """
    scheme, _, path = address.partition("://")
    with named_errors(address), target.open("wb") as copy, _OPENERS[_known(scheme)](path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            copy.write(chunk)


def _known(scheme: str) -> str:
    if scheme not in SCHEMES:
        known = ", ".join(f"{known}://" for known in SCHEMES)
        raise ConfigError(
            f"no files are read from {scheme}://; expected a local path or one of {known}"
        )
    return scheme


def s3_filesystem() -> Any:
    """PyArrow's S3, at the endpoint and in the region of the environment."""
    from pyarrow.fs import S3FileSystem  # noqa: PLC0415 - most homes only have local files

    return S3FileSystem(
        endpoint_override=os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL"),
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        connect_timeout=_TIMEOUT_S,
        request_timeout=_TIMEOUT_S,
        allow_delayed_open=True,  # a small object is one PUT
    )


def _hub() -> Any:
    from huggingface_hub import HfFileSystem  # noqa: PLC0415

    return HfFileSystem(skip_instance_cache=True)


def _list_s3(root: str) -> Iterator[str]:
    from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415

    storage = s3_filesystem()
    bucket = storage.get_file_info(root.partition("/")[0])
    if bucket.type == FileType.NotFound:
        raise FileNotFoundError(root)
    place = storage.get_file_info(root)
    if place.type == FileType.File:
        yield place.path
        return
    below = storage.get_file_info(FileSelector(root, recursive=True, allow_not_found=True))
    yield from (entry.path for entry in below if entry.type == FileType.File)


def _list_hub(root: str) -> Iterator[str]:
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415

    with suppress(EntryNotFoundError):
        yield from _hub().find(root)


_LISTINGS: dict[str, Callable[[str], Iterator[str]]] = {"s3": _list_s3, "hf": _list_hub}
_OPENERS: dict[str, Callable[[str], Any]] = {
    "s3": lambda path: s3_filesystem().open_input_stream(path, compression=None),  # as it came
    "hf": lambda path: _hub().open(path, "rb"),
}


@contextmanager
def named_errors(address: str) -> Iterator[None]:
    """Errors of a storage inside the block as ours, with the address.

    Raises:
        ConfigError: what is asked for does not exist, or access is refused.
        TransientError: the storage fails for now.
    """
    # The base of the hub client's own errors, which are no OSErrors.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # noqa: PLC0415

    try:
        yield
    except FileNotFoundError as error:
        raise ConfigError(
            f"{address}: no such bucket, repository or file, or it may not be seen; correct the "
            f"address or the credentials"
        ) from error
    except (OSError, ValueError, HTTPError) as error:
        raise _classified(error, address) from error


def _classified(error: Exception, address: str) -> ConfigError | TransientError:
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    code = _AWS_ERROR.search(str(error))
    refused = isinstance(error, PermissionError | ValueError | NotImplementedError)
    refused = refused or (code is not None and code[1] in _AWS_REFUSALS)
    refused = refused or status in {401, 403, 404} or type(error).__name__ == "OfflineModeIsEnabled"
    if refused:
        what = code[1] if code else f"HTTP {status}" if status else type(error).__name__
        return ConfigError(f"{address}: refused ({what}); correct the address or the credentials")
    return TransientError(f"{address}: cannot be reached now ({type(error).__name__}); try again")
