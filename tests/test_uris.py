"""What lies in object storage."""

from __future__ import annotations

import pytest

from mast.errors import ConfigError, MastError
from mast.uris import is_uri, open_uri


def test_what_is_a_uri() -> None:
    assert [is_uri(text) for text in ("s3://a/b", "gs://a", "memory://x", "HTTP://x/y.wav")] == [True] * 4
    assert not any(is_uri(text) for text in ("a/b", "/a/b.wav", "C:\\a", "s3:/a", "://x", ""))


def test_what_cannot_be_opened() -> None:
    with pytest.raises(ConfigError, match="nosuch://s: URIs of this kind cannot be opened here"):
        open_uri("nosuch://s")
    with pytest.raises(MastError, match="cannot be opened"):
        open_uri("s3://bucket?no_such_option=1")


def test_a_file_in_memory() -> None:
    system, path = open_uri("memory://some/file")
    with system.open_output_stream(path) as file:
        file.write(b"here")
    with system.open_input_file(path) as file:
        assert file.read() == b"here"
    system.delete_file(path)
