"""Files in object storage, by URI: S3 and Google storage by pyarrow itself, everything else by fsspec."""

from __future__ import annotations

import re
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs as arrow_fs
from pyarrow.lib import ArrowException

from mast.errors import ConfigError, MastError, first_line

_URI = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
_NATIVE = ("s3", "gs", "gcs")  # schemes that pyarrow knows by itself


def is_uri(text: str) -> bool:
    """Whether this names something in object storage and not on a disk.

    >>> is_uri("s3://bucket/2023"), is_uri("recordings/2023")
    (True, False)
    """
    return _URI.match(text) is not None


@cache
def open_uri(uri: str) -> tuple[Any, str]:
    """The file system of a URI, and the path inside it.

    Raises:
        MastError: the storage does not answer.
        ConfigError: nothing installed here knows such URIs.
    """
    try:
        system, path = arrow_fs.FileSystem.from_uri(uri)
        return system, str(path)
    except (ArrowException, OSError) as error:
        if urlsplit(uri).scheme in _NATIVE:
            raise MastError(
                f"{uri}: cannot be opened ({first_line(error)}); check the name, access rights and network"
            ) from error
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{uri}: URIs of this kind cannot be opened here ({first_line(error)}); expected s3://, gs:// or one "
            "whose fsspec package is installed"
        ) from error
    return arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(system)), str(path)
