"""`mast train`: the box detector on expert labels."""

from __future__ import annotations

from typing import Annotated

import typer

from mast.cli.options import Quiet, Seed, lock_folder, say, step_progress
from mast.cli.recipes import (
    Annotations,
    AutoPreset,
    Band,
    LabelledData,
    RunFolder,
    Settings,
    chosen_settings,
    preset_for_machine,
    recipe_from,
)
from mast.wording import format_rate


def train(
    data: LabelledData,
    out: RunFolder,
    init: Annotated[
        str | None,
        typer.Option(
            help="What to start from: a detector's run or model folder (all its weights, architecture and front end), "
            "default (the embedded one), hf://owner/name, a pretraining run's (the encoder), or AudioMAE's "
            "pretrained.pth; for faster_rcnn and fcos, torchvision's resnet50."
        ),
    ] = None,
    detector: Annotated[
        str | None,
        typer.Option(
            help="mast, or a baseline: faster_rcnn, fcos, detr, yolo26; its options: --set train.detector.NAME=VALUE."
        ),
    ] = None,
    annotations: Annotations = None,
    preset: AutoPreset = None,
    band: Band = None,
    settings: Settings = None,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Train a detector on boxes that people drew.

    Recordings are divided 70/15/15 into train, val and test, or 70/30 without a test part where there are fewer than
    100 boxes; the score threshold is tuned on val. Writes OUT/best and OUT/last (model folders), OUT/curves.jsonl and
    OUT/split.csv, which lists the recordings of each part. A column split in recordings.csv decides instead, so that
    runs with other seeds have the same parts.

    \b
    Example:
      mast train labelled/ --init runs/pretrain --out runs/detector --preset tiny
      mast train labelled/ --detector fcos --out runs/fcos --preset small
    """
    import pandas as pd

    from mast.data import load_dataset
    from mast.data.band_filter import restrict_to_band
    from mast.evaluation.evidence import Finding
    from mast.models.card import load_card
    from mast.training.chosen_chunks import labelled_chunks
    from mast.training.detector_training import train_detector
    from mast.training.effort import adjust_recipe
    from mast.training.leakage import avoid_leakage
    from mast.training.part_list import PART_LIST, describe_parts, unused_boxes
    from mast.training.start import Start
    from mast.training.start_comparison import compare_with_start, learnt_from

    chosen = [f"model={detector}"] if detector else []
    start = Start.find(init)
    recipe = start.adapt_recipe(
        recipe_from(preset or preset_for_machine(start), band, [*(settings or []), *chosen])
    )
    dataset = restrict_to_band(load_dataset(data, annotations=annotations), recipe.front_end)
    dataset = avoid_leakage(
        dataset,
        start.folders,
        recipe.front_end,
        seed=seed,
        say=lambda text: say(f"Note: {text}.", quiet=quiet),
    )
    if preset is None and start.is_detector:
        parts = labelled_chunks(dataset, recipe.front_end, seed=seed)
        held, learnt = parts["val"], learnt_from(parts["train"], dataset, recipe.front_end)
        recipe = adjust_recipe(
            recipe,
            len(parts["train"]),
            held_boxes=held.n_boxes,
            start_share=start.share(learnt, held, recipe.front_end),
            fixed=chosen_settings(settings).keys(),
        )
    with lock_folder(out), step_progress(quiet, "train") as progress:
        result = train_detector(dataset, out, recipe, init=start.path, seed=seed, progress=progress)
    best, card = result.best, load_card(out / "best")
    speed = format_rate(result.chunks_per_s, "chunk")
    threshold = float(card.probabilities.apply(card.thresholds["score"]))  # in the scores that detect gives
    listed = pd.read_csv(out / PART_LIST)
    say(f"Parts: {describe_parts(listed)} (listed in {out / PART_LIST}).", quiet=quiet)
    unused = unused_boxes(dataset, listed, recipe.front_end)
    if unused.boxes:
        say(f"Note: {unused.sentence}.", quiet=quiet)
    say(
        f"Done: validation F1 {best['f1']:.3f} (precision {best['precision']:.3f}, recall {best['recall']:.3f}, "
        f"ap50 {best['ap50']:.3f}) after epoch {result.best_epoch}; {speed}. mast detect "
        f"will use threshold {threshold:.2f}. Detector in {out / 'best'}.",
        quiet=quiet,
    )
    if start.is_detector:
        before, after, finding = compare_with_start(dataset, out / "best", start, recipe, seed=seed)
        as_is, trained = ("undefined" if own.f1 is None else f"{own.f1:.3f}" for own in (before, after))
        numbers = f"F1 {as_is} as is, {trained} trained, each at its own threshold"
        if finding is Finding.LUCK:
            say(
                f"Training looked better than the model it started from on validation ({numbers}), but on "
                f"{before.size} that may be due to chance: --model {init} is the safer choice.",
                quiet=quiet,
            )
        elif finding is Finding.NOT_BETTER:
            say(
                f"Training did not beat the model it started from on validation ({numbers}): use --model {init}.",
                quiet=quiet,
            )
