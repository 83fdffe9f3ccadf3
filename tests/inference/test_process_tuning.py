import gc
import os

import pytest

from mast.inference import process_tuning


def glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError):
        return False


@pytest.fixture(autouse=True)
def nothing_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in process_tuning._USERS_OWN:
        monkeypatch.delenv(name, raising=False)


def test_memory_is_kept_where_the_c_library_is_glibc() -> None:
    assert process_tuning.keep_freed_memory() is glibc()


def test_what_the_user_has_settled_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not process_tuning.keep_freed_memory()


@pytest.mark.parametrize("error", [ValueError("unknown name"), OSError("none"), AttributeError("confstr")])
def test_other_c_libraries_are_left_alone(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(name: str) -> str:
        raise error

    monkeypatch.setattr(os, "confstr", ask, raising=False)
    assert not process_tuning.keep_freed_memory()


def test_what_is_loaded_is_left_out_of_garbage_collection() -> None:
    process_tuning.tune_process()
    try:
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
