"""Where models come from: a folder, the one that ships with mast, or a repository on a model hub."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from mast.errors import ConfigError, MastError, first_line, not_a_folder
from mast.models.card import CARD, WEIGHTS
from mast.runs import RECIPE, STAGES, load_inputs, stopped_steps

DEFAULT = "default"
# what a run's recipe calls its kind → the command
_COMMANDS = {"detector": "train", "pretrain": "pretrain", "selftrain": "selftrain", "adapted": "adapt"}
# one slash or two: a path loses the second
_HUB = re.compile(r"hf:/{1,2}(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_STAGES_AFTER_MODEL = {"evaluate", "report"}  # steps of mast fit that change no model
_EXPECTED = (
    f"expected {DEFAULT} (the model that ships with mast), a run of mast fit or mast train, a model folder "
    f"(with {WEIGHTS})"
)


def find_model(name: str | Path, *, or_file: bool = False) -> Path:
    """The folder of a model from its name as users give it, the same in every command.

    Args:
        name: ``"default"`` for the model that ships with mast; a run that holds a model as ``best``, or a model folder;
            ``"hf://owner/name"`` or ``"hf://owner/name@revision"`` for one on the Hugging Face hub. A folder that is
            called ``default`` is ``"./default"``, or a ``Path``.
        or_file: also accept a file, as it is: training may start from other people's weights.

    Raises:
        MastError: there is no such model.
    """
    text = str(name)
    if text.startswith("hf:"):
        match = _HUB.fullmatch(text)
        if match is None:
            raise MastError(
                f"{text}: not a valid name of a model on the hub; expected hf://owner/name or hf://owner/name@revision"
            )
        return _download(match["repository"], match["revision"])
    if _is_shipped(name):
        return _shipped_folder()
    path = Path(name)
    if or_file and path.is_file():
        return path
    folder = _folder(path)
    if folder is None:
        if (command := _unfinished_command(path)) is not None:
            raise MastError(f"{path}: mast {command} has not finished there; if it was stopped, run it again")
        kind = "holds no model" if path.is_dir() else not_a_folder(path)
        raise MastError(
            f"{path}: {kind}; {_EXPECTED}, hf://owner/name{', a file such as pretrained.pth' if or_file else ''}"
        )
    return folder


def model_warning(name: str | Path) -> str:
    """Why a model may not be the one that its user expects, as a sentence; empty where there is no doubt."""
    run = Path(name)
    if _is_shipped(name) or not set(stopped_steps(run)) - _STAGES_AFTER_MODEL:
        return ""
    return f"{run}: mast fit has not finished there, so its detector may be that of an earlier run; run mast fit again"


def is_model_name(name: str | Path) -> bool:
    """Whether :func:`find_model` takes this for a name, or finds a model there, so that it is not just any folder."""
    return str(name).startswith("hf:") or _is_shipped(name) or _folder(Path(name)) is not None


def absolute_name(name: str | Path) -> str:
    """The name of a model for later use, from whatever folder."""
    if str(name).startswith("hf:") or _is_shipped(name):
        return str(name)
    return str(find_model(name).absolute())


def _is_shipped(name: str | Path) -> bool:
    return str(name) == DEFAULT and (isinstance(name, str) or not name.exists())


def _folder(path: Path) -> Path | None:
    return next((folder for folder in (path, path / "best") if (folder / WEIGHTS).is_file()), None)


def _unfinished_command(run: Path) -> str | None:
    """The command that began a run in a folder that holds no model; None where there is no run."""
    if (run / STAGES).is_dir():
        return "fit"
    try:
        return _COMMANDS.get(str((load_inputs(run / RECIPE) or {}).get("kind")))
    except ConfigError:  # damaged, or not ours
        return None


def _pretrained() -> Path:
    return Path(str(files("mast") / "pretrained"))


def _shipped_folder() -> Path:
    folder = _pretrained() / DEFAULT
    if not (folder / WEIGHTS).is_file():
        raise MastError(
            f"no model ships with this copy of mast ({folder / WEIGHTS} is missing); give the folder of a run of "
            "`mast fit` or `mast train`, or hf://owner/name for one on the hub"
        )
    return folder


def _download(repository: str, revision: str | None) -> Path:
    """Weights and card of a repository, from the cache where the hub has nothing newer or cannot be reached."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    name = f"hf://{repository}" + (f"@{revision}" if revision else "")
    try:
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=[WEIGHTS, CARD]))
    except GatedRepoError:
        raise MastError(
            f"{name}: its owner restricts access; ask for it on the model's page, then run `hf auth login`"
        ) from None
    except RepositoryNotFoundError:
        raise MastError(f"{name}: no such model on the hub, or a private one; check the name") from None
    except RevisionNotFoundError:
        raise MastError(
            f"{name}: the model has no revision {revision}; leave it out for the newest"
        ) from None
    except LocalEntryNotFoundError:
        raise MastError(
            f"{name}: is not on this machine and the hub cannot be reached; connect once to download it, or copy the "
            "model folder here and give its path"
        ) from None
    except Exception as error:  # from whatever library the hub's own one uses for its transport
        raise MastError(f"{name}: cannot be downloaded ({first_line(error)}); try again later") from None
    missing = [file for file in (WEIGHTS, CARD) if not (folder / file).is_file()]
    if missing:
        raise MastError(
            f"{name}: holds no {' and no '.join(missing)}; expected a model that `mast export --format hub` has written"
        )
    return folder
