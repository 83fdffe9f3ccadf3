"""The README of a folder of tasks: for the person who listens, in plain words."""

from __future__ import annotations

import pandas as pd

from mast.wording import counted

_TOOLS = {
    "raven": """\
With Raven (Lite or Pro)
------------------------
1. Open clips/NAME.wav.
2. Open the selection table of the same name, clips/NAME.Table.1.selections.txt (File > Open Selection Table).
3. Draw a selection around every sound you are asked to mark, from its first to its last moment and from its lowest
   to its highest frequency. Write its name into the column "Annotation" (leave it blank where you do not know).
4. Save the table under the same name, in the same place.
""",
    "audacity": """\
With Audacity
-------------
1. Open clips/NAME.wav, show its spectrogram, and switch spectral selection on (track menu > Spectrogram Settings).
2. Import the labels of the same name, clips/NAME.txt (File > Import > Labels); an empty file is fine.
3. Select every sound you are asked to mark, in time and in frequency, and add a label (Ctrl+B): its name, or nothing
   where you do not know it. A label without frequencies counts as the whole band.
4. Export the labels under the same name, in the same place (File > Export > Export Labels).
""",
    "aoef": """\
With Whombat
------------
1. Register the folder clips/ as a dataset.
2. Import project.json as an annotation project, with clips/ as its audio folder. Each clip is a task.
3. Draw a box around every sound you are asked to mark, tag it (key "label" or "species"), and mark the task as
   completed when you have listened to all of the clip.
4. Export the project (Download > AOEF) and save it here as project.json, in place of the old one.
""",
}


def readme_text(plan: pd.DataFrame, format: str, *, prefilled: bool) -> str:
    """The text of README.txt."""
    seconds = float((plan["end_s"] - plan["start_s"]).sum())
    sites = int(plan.loc[plan["site"] != "", "site"].nunique())
    recordings = int(plan["recording"].nunique())
    places = f" at {counted(sites, 'site')}" if sites else ""
    lines = [
        f"{counted(len(plan), 'clip')} to annotate, {seconds / 60:.1f} minutes in all, from "
        f"{counted(recordings, 'recording')}{places}.",
        "",
        "The most useful clips come first, so if you cannot do them all, leave out the last ones.",
        "Please listen to each clip from beginning to end, and mark EVERY sound of interest in it. A sound that is",
        "left out teaches the detector to ignore such sounds.",
        "",
        _TOOLS[format].rstrip(),
        "",
    ]
    if prefilled:
        lines += [
            f"A detector has filled in {counted(int(plan['prefilled'].sum()), 'box')} already. It is often wrong:",
            "correct its boxes, delete what is not a call, and add what it missed.",
            "",
        ]
    if format != "aoef":
        lines += [
            "Heard, and nothing there?" + (" Or all boxes right as they are?" if prefilled else ""),
            "-" * (57 if prefilled else 25),
            'Then the table stays as it is, and only you know that you listened. Write "yes" in the column "done" of',
            "plan.csv for that clip (any spreadsheet opens it). A table that nobody changed and nobody ticked off",
            "counts as not listened to.",
            "",
        ]
    lines += [
        "Giving it back",
        "--------------",
        "Return the whole folder, with plan.csv. Do not rename the clips. In the project's folder:",
        "",
        "    mast convert THIS_FOLDER recordings/boxes.csv --from tasks --to csv",
        "",
        "which puts every box where it belongs in the original recordings, and remembers which spans were listened to.",
        "If recordings/boxes.csv holds boxes already, add --add-to recordings/ to keep them.",
    ]
    return "\n".join(lines) + "\n"
