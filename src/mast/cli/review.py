"""`mast review`: the web page where experts look, listen, correct and confirm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.options import NoBrowser, Port, Quiet, Seed, progress_counter, say, step_progress
from mast.wording import counted

if TYPE_CHECKING:
    from mast.review.open_review import Review


def review(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A results folder of mast detect, or a dataset.")
    ],
    audio: Annotated[
        Path | None, typer.Option(help="Where the recordings are, if they have moved since.")
    ] = None,
    annotations: Annotated[
        Path | None, typer.Option(help="Boxes of a dataset in any format, if not DIR/boxes.csv.")
    ] = None,
    names: Annotated[
        list[Path] | None,
        typer.Option(
            help="Names to show, as mast name or mast classify wrote them; may be given several times."
        ),
    ] = None,
    no_voices: Annotated[
        bool,
        typer.Option(
            "--no-voices",
            help="First search all recordings for speech, to silence it; needs the voices extra.",
        ),
    ] = False,
    port: Port = 8765,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; 0.0.0.0 lets other computers in, with the link that is printed."
        ),
    ] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(help="Use this token in the link instead of a random one.")
    ] = None,
    no_browser: NoBrowser = False,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Look at boxes, listen, correct and confirm in the browser.

    Every decision is saved at once in DIR/review.sqlite, with who made it; several people may work at the same time,
    each under their own name. Run the command again to continue; new detections are added. The page exports to all
    annotation formats; exported as CSV, DIR/review_export/NAME is a dataset for mast fit and mast train.

    The page opens only with the link that is printed: its token keeps out other users of this machine. Once you have
    opened it, the browser remembers it until the command is started again.

    A detector learns only from sound that was listened to, so mark what you have heard on the page.

    --no-voices searches every recording for speech before the page opens, and lists it in DIR/voices.csv. What is
    listed there is silent on the page from then on, even without the option. A stopped search resumes. It misses faint
    and distant voices; docs/checking.md says how many.

    \b
    Example:
      mast review detections/
      mast review detections/ --audio /media/card --port 0 --no-browser
      mast review detections/ --names named.csv
    """
    from mast.classifiers.voice_lists import VOICES
    from mast.review.open_review import open_review
    from mast.review.safety import is_loopback
    from mast.review.serve import serve
    from mast.review.server import create_app
    from mast.review.suggestions import add_suggestions

    with step_progress(quiet, "open") as show:
        opened = open_review(folder, audio=audio, annotations=annotations, seed=seed, progress=show)
    for table in names or []:
        say(f"{add_suggestions(opened.store, table):,} events have names from {table}", quiet=quiet)
    if no_voices:
        _search_voices(opened, quiet)
    if spoken := opened.silence.all_spans():
        stretches = counted(sum(map(len, spoken.values())), "stretch")
        many = counted(len(spoken), "recording")
        say(f"Speech is silenced on the page: {stretches} in {many} ({folder / VOICES})", quiet=quiet)
    found = opened.intake
    new = f", {found.new_events:,} events new" if found.new_events else ""
    say(f"{counted(found.recordings, 'recording')}{new}; decisions go to {opened.store.path}", quiet=quiet)

    def print_address(address: str) -> None:
        typer.echo(f"Review page: {address}  (Ctrl-C stops it; everything is saved)")

    serve(
        # people who choose a token may reach the page under another name, through a proxy
        lambda secret: create_app(opened, token=secret, local_only=token is None and is_loopback(host)),
        host=host,
        port=port,
        token=token,
        browser=not no_browser,
        say=print_address,
    )


def _search_voices(opened: Review, quiet: bool) -> None:
    from mast.classifiers.voice_lists import update_voice_lists
    from mast.classifiers.voices import VoiceFinder

    finder = VoiceFinder()
    recordings = opened.readable_recordings()
    with progress_counter(quiet, "voices", "recordings", len(recordings)) as advance:
        failures = update_voice_lists(recordings, finder, opened.workspace.folder, progress=advance)
    if failures:
        many = counted(len(failures), "recording")
        say(f"{many} could not be searched for speech; the first: {failures[0]}", quiet=quiet)
