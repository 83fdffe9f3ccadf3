"""The embedded detector, from material to model folder, in one resumable command.

    python scripts/default_model.py --pool POOL --expert BIRDS --work runs/default --out src/mast/pretrained/default

``POOL``: clips with a ``clips.csv`` (``file, source, label, duration_s, licence``) under licences that allow a model to
be shipped. ``BIRDS``: a small boxed dataset, of which only the part ``train`` is used. The rest is simulated worlds,
each with its own species, sites, recorders and weather; calls are procedural, real (isolated clips of the pool) or
both, and so are backgrounds. Masked pretraining uses pool and worlds. The model then learns to find sounds by training
on worlds boxed by many annotators (and on the expert's boxes). Three refinements follow, each on worlds of another
kind, to learn what people count as one event; their weights are averaged, which generalises better than any one of
them, and a last short lesson settles the average. A long lesson on worlds of all kinds follows, and is averaged with
its start. Then come pieces of the pool that were boxed by eye (``default_model_checked.csv``), among sparser worlds:
two lessons, with fewer and with more of them, are averaged with their start. If one box lies in another, the model
gives the better of the two. Threshold and calibration come from clips of the pool that were never trained on.

``--teach MODEL`` runs an experiment instead, from which nothing is shipped yet: a lesson on worlds with bats and fish
as themselves, a larger detector trained on the same worlds, and a round of self-training on the pool's clips with that
detector as teacher. ``--self-train`` adds a round on the pool first. Training and the lessons need a GPU (an hour and a
half), except for two that take half an hour on two CPU cores; ``--trained`` starts with the refinements.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd
import soundfile as sf

from mast.audio import read
from mast.data.recordings import load_dataset
from mast.data.simulate.dataset import Simulation, simulate_dataset
from mast.data.simulate.species import Fauna
from mast.data.simulate.visible import BoxStyle
from mast.data.soundscape_bench import BACKGROUND_LABELS, CALL_LABELS
from mast.export.readmes import hub_readme
from mast.grid import FrontEnd
from mast.loaded_model import LoadedModel
from mast.models.checkpoint import load_checkpoint, save_checkpoint, update_card
from mast.models.mast_detector import MastDetector
from mast.runs import Progress
from mast.selftrain.rounds import self_train
from mast.training.calibrate import calibrate_checkpoint, ranges_of
from mast.training.chosen_chunks import Chunks, decode_once, labelled_chunks
from mast.training.chunk_scores import chunk_metrics, detect_chunks
from mast.training.detector_training import train_detector
from mast.training.machine import Machine, prepare_machine
from mast.training.pretraining import pretrain
from mast.training.recipe import TrainRecipe, load_recipe, parse_override

RECIPE = Path(__file__).with_suffix(".toml")
REFINEMENT = RECIPE.with_stem("default_model_refine")
TEACHER = RECIPE.with_stem("default_model_teacher")
CHECKED = RECIPE.with_name("default_model_checked.csv")
REFINEMENTS = ("calls", "expert", "songs")
FIRST_SEED = 1_000  # for the worlds; the benchmark's are above 7,000, the zero-shot tests' above 9,000
NOISE_LABELS = (
    *BACKGROUND_LABELS,
    "Rain",
    "Thunderstorm",
    "Wind",
    "wind",
    "VehicleEngine",
    "Generator",
    "Helicopter",
)
RECORDINGS = 12  # minutes of each world
# share of the smaller of two boxes. People hardly ever draw a box inside another (mast_studies/nested_boxes.py), unlike
# the simulator, which knows every animal: the model has to decide whether a phrase or its notes are the event
NESTED = 0.8
RATE = 16_000
Sound = np.ndarray[Any, Any]
DATA = (
    "simulated worlds, a pool of freely licensed clips (84 minutes of it boxed by a vision-language model), and the "
    "training days of BIRDeep's recorder AM1"
)
# the boxes that precision was measured on, as `mast detect --precision` reports them
VALIDATION = "freely licensed clips, boxed by a vision-language model and checked by nobody"
ATTRIBUTION = """
## Whose sound it learnt from

- Simulated worlds, made by `mast simulate`'s own code.
- Isolated flight calls of CLO-43SD (CC0); clips of ESC-50 (K. J. Piczak; CC0 and CC BY clips) and FSC22 (CC0), from
  Freesound; ambiences of Blanket (CC BY, CC0, public domain); recordings that come with the programs behaviouR (MIT),
  scikit-maad (BSD), OpenSoundscape (MIT) and QUT's audio analysis (Apache-2.0). `attribution.csv` names every clip
  under CC BY, by the name it has in its collection.
- In 84 minutes of those clips boxes were drawn by eye: by a vision-language model that looked at spectrograms with the
  proposals of this model's forerunner, kept, joined, dropped and added boxes; no person has checked them.
- BIRDeep (MIT), recorder AM1, 10 to 12 May 2023, with its boxes.

## What it finds in recordings it never heard

`docs/zero_shot.md` and `results/zero_shot.json`. Read the figures with this in mind: the test recordings of
`birdeep_am1` are later days of the recorder named above; the sets there were looked at while the model was made; and
the half of `nbm_xc` that was to stay unseen was measured seven times.
"""


def main() -> None:
    """Read the options; simulate, gather, train, pack."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pool", type=Path, required=True, help="clips with clips.csv")
    parser.add_argument("--expert", type=Path, help="a boxed dataset; only its train part is used")
    parser.add_argument("--work", type=Path, default=Path("runs/default"))
    parser.add_argument(
        "--worlds", type=float, default=1.0, help="factor for the number of worlds, for a rehearsal"
    )
    parser.add_argument("--workers", type=int, default=2, help="simulating processes")
    parser.add_argument("--set", action="append", default=[], help="as in mast fit")
    parser.add_argument("--out", type=Path, help="where to write the model to ship; left in WORK by default")
    parser.add_argument("--self-train", action="store_true", help="also self-train on the pool")
    parser.add_argument("--trained", type=Path, help="a trained model, to run only the refinements")
    parser.add_argument("--calibrate", type=Path, help="a finished model, to only calibrate it again")
    parser.add_argument("--ranges", type=Path, help="a finished model, to only measure its ranges again")
    parser.add_argument("--teach", type=Path, help="a finished model, to be taught by a larger one")
    options = parser.parse_args()
    if options.teach is not None:
        finalise(teach(options.teach, options), checked_minutes(options.pool, options.work / "checked"))
        return
    if options.calibrate is not None:
        checked = checked_minutes(options.pool, options.work / "checked")
        calibrate(options.calibrate, hold_back(checked, load_checkpoint(options.calibrate).card.front_end))
        return
    if options.ranges is not None:
        model = LoadedModel.load(options.ranges, device="cpu")
        held = hold_back(checked_minutes(options.pool, options.work / "checked"), model.front_end)
        update_card(model.folder, model.card.model_copy(update={"ranges": ranges_of(model, held.chunks)}))
        return
    trained = options.trained or train_all(options)
    refined = [refine(name, trained, options) for name in REFINEMENTS]
    last = refine("last", average(refined, options.work / "average"), options)
    both = average([refine("long", last, options), last], options.work / "both")
    real = [refine(name, both, options) for name in ("real", "more_real")]
    final = average([both, both, *real], options.work / "final")
    finalise(final, checked_minutes(options.pool, options.work / "checked"))
    if options.out is not None:
        pack(final, options.out, options)


def refine(name: str, start: Path, options: argparse.Namespace) -> Path:
    """Run one lesson after training; returns the model's folder."""
    lesson, data, run = LESSONS[name], options.work / f"data_{name}", options.work / name
    gather_dataset(data, lesson, make_worlds(data, name, options), options)
    overrides = dict(parse_override(text) for text in options.set)
    recipe = load_recipe(REFINEMENT, dict(lesson.settings) | overrides)
    best = train_detector(data, run, recipe, init=start, progress=_print_progress(name)).best
    print(f"{name}, on unseen worlds: {json.dumps({k: round(v, 3) for k, v in best.items()})}", flush=True)
    return run / "best"


def teach(start: Path, options: argparse.Namespace) -> Path:
    """Run the lesson "faunas", then learn what a larger detector of the same worlds finds in the pool.

    Returns the model's folder.
    """
    learnt = refine("faunas", start, options)
    data, teacher, student = (options.work / name for name in ("data_faunas", "teacher", "student"))
    overrides = dict(parse_override(text) for text in options.set)
    train_detector(data, teacher, load_recipe(TEACHER, overrides), progress=_print_progress("teacher"))
    pool = join_clips(options.pool, options.work / "pool")
    recipe = load_recipe(REFINEMENT, overrides)
    rows = self_train(
        data,
        [pool],
        learnt,
        student,
        recipe,
        teachers=[teacher / "best"],
        say=print,
        progress=_print_progress("student"),
    )
    print(rows.to_string())
    return student / "best"


def average(models: list[Path], out: Path) -> Path:
    """Average the weights that all models have, and the thresholds; the card is the first one's, without its ranges.

    A model that is named several times counts that many times. Returns the model's folder.
    """
    loaded = [load_checkpoint(folder) for folder in models]
    mean, card = loaded[0]
    states = [one.state_dict() for one, _ in loaded]
    mean.load_state_dict(
        {name: sum(state[name].float() for state in states) / len(states) for name in states[0]}
    )
    score = sum(one.thresholds["score"] for _, one in loaded) / len(loaded)
    updates = {"thresholds": card.thresholds | {"score": score}, "ranges": None}
    save_checkpoint(out, mean, card.model_copy(update=updates))
    return out


def finalise(folder: Path, data: Path) -> None:
    """Make an average ready for use: no box inside another, and threshold and calibration from held-back recordings."""
    model, card = load_checkpoint(folder)
    assert isinstance(model, MastDetector)
    model.config = model.config.model_copy(update={"nested": NESTED})
    held = hold_back(data, card.front_end)
    found = detect_chunks(
        LoadedModel(model, card, device=held.machine.device, precision=held.machine.precision),
        held.chunks,
        batch_size=held.batch_size,
        workers=held.machine.workers,
        score_threshold=held.plan.score_threshold,
        nms_iou=held.plan.nms_iou,
    )
    metrics = chunk_metrics(found)
    updates = {
        "architecture": model.config,
        "thresholds": card.thresholds | {"score": metrics["threshold"]},
        "provenance": card.provenance | {"metrics": metrics},
        "calibration": None,
    }
    save_checkpoint(folder, model, card.model_copy(update=updates))
    calibrate(folder, held)
    print(f"on what was held back: {json.dumps({k: round(v, 3) for k, v in metrics.items()})}", flush=True)


class HeldBack(NamedTuple):
    """Chunks to choose and calibrate by, and how they are processed."""

    chunks: Chunks
    machine: Machine
    plan: TrainRecipe

    @property
    def batch_size(self) -> int:
        """Chunks at a time."""
        return self.machine.eval_batch(self.plan.batch_size)


def hold_back(data: Path, front_end: FrontEnd) -> HeldBack:
    """What a dataset holds back for validation."""
    recipe = load_recipe(REFINEMENT, {"precision": "auto"})  # nothing is trained: any machine will do
    machine = prepare_machine(recipe)
    chunks = labelled_chunks(load_dataset(data), front_end)["val"]
    return HeldBack(decode_once(chunks, machine.device, workers=machine.workers), machine, recipe.train)


def calibrate(folder: Path, held: HeldBack) -> None:
    """Calibrate a model's scores; its threshold stays."""
    calibrate_checkpoint(
        folder,
        held.chunks,
        held.machine,
        batch_size=held.batch_size,
        min_score=held.plan.score_threshold,
        data=VALIDATION,
        seed=0,
    )


def train_all(options: argparse.Namespace) -> Path:
    """Pretrain, train, and self-train if requested; a killed stage resumes. Returns the model's folder."""
    data = options.work / "data"
    gather_dataset(data, LESSONS["train"], make_worlds(data, "train", options), options)
    recipe = load_recipe(RECIPE, dict(parse_override(text) for text in options.set))
    pretrained, run = (options.work / name for name in ("pretrain", "train"))
    pool = join_clips(options.pool, options.work / "pool")
    pretrain([data, pool], pretrained, recipe, progress=_print_progress("pretraining"))
    best = train_detector(
        data, run, recipe, init=pretrained / "best", progress=_print_progress("training")
    ).best
    print(f"validation on unseen worlds: {json.dumps({k: round(v, 3) for k, v in best.items()})}", flush=True)
    if not options.self_train:
        return run / "best"
    out = options.work / "selftrain"
    rounds = self_train(data, [pool], run / "best", out, recipe, say=print)
    print(rounds.to_string())
    return out / "best"


def join_clips(pool: Path, out: Path, sources: Collection[str] = (), *, sample_rate: int = RATE) -> Path:
    """A pool's clips end to end, a minute per recording: by themselves, most are shorter than half a chunk.

    Clips that are held back for choosing and calibrating are left out.
    ``sources``: only these. ``sample_rate``: what the files' headers say; a quarter of the clips' own plays them
    four times slower.
    """
    if (out / "recordings.csv").exists():
        return out
    out.mkdir(parents=True, exist_ok=True)
    clips = pd.read_csv(pool / "clips.csv")
    held_back = {file for file in pd.read_csv(CHECKED)["file"] if is_held_back(file)}
    written: list[dict[str, object]] = []
    for source, own in clips.groupby("source"):
        if sources and source not in sources:
            continue
        files = [file for file in own["file"] if file not in held_back]
        for minute in group_by_minute(read(pool / file, sample_rate=RATE) for file in files):
            name = f"{source}_{len(written):04d}.wav"
            sound = np.concatenate(minute)
            sf.write(out / name, sound, sample_rate, subtype="PCM_16")
            facts = {"file": name, "site": source, "duration_s": len(sound) / sample_rate}
            written.append(facts | {"sample_rate": sample_rate})
    pd.DataFrame(written).to_csv(out / "recordings.csv", index=False)
    return out


def group_by_minute(sounds: Iterable[Sound]) -> Iterator[list[Sound]]:
    """Groups of consecutive clips that last a minute or a little more; the last group may be shorter."""
    minute: list[Sound] = []
    for sound in sounds:
        minute.append(sound)
        if sum(map(len, minute)) >= 60 * RATE:
            yield minute
            minute = []
    if minute:
        yield minute


def _print_progress(what: str) -> Progress:
    """Prints a line of progress every now and then."""
    last_step = [-1]

    def progress(done: int, total: int, text: str) -> None:
        if total and done * 50 // total > last_step[0]:
            last_step[0] = done * 50 // total
            print(f"{what}: {done} of {total} {text}", flush=True)

    return progress


def varied_style(rng: np.random.Generator) -> BoxStyle:
    """Annotators who differ in everything: what counts is that a sound is found."""
    return BoxStyle(
        gap_s=float(np.exp(rng.uniform(np.log(0.07), np.log(0.35)))),
        song_gap_s=rng.uniform(0.3, 0.7),
        above_background_db=rng.uniform(6, 9),
        edge_db=rng.uniform(3, 6),
        below_peak_db=rng.uniform(30, 45),
    )


def consistent_style(rng: np.random.Generator, faint_db: tuple[float, float] = (28.0, 40.0)) -> BoxStyle:
    """An annotator with habits: calls apart, songs and trains of notes together, echoes left outside.

    ``faint_db``: range of how far below its peak a call is still drawn.
    """
    return BoxStyle(
        gap_s=rng.uniform(0.08, 0.16),
        song_gap_s=rng.uniform(0.35, 0.6),
        trains_are_songs=True,
        above_background_db=rng.uniform(6, 9),
        edge_db=rng.uniform(3, 6),
        below_peak_db=rng.uniform(*faint_db),
        tail_db=rng.uniform(9, 17),
    )


class Annotator(NamedTuple):
    """Who boxes a world, and the share of its species that sing."""

    style: Callable[[np.random.Generator], BoxStyle]
    motifs: float = 0.0


@dataclass(frozen=True)
class Lesson:
    """The data and settings of a stage of training.

    Attributes:
        first: number of its first world; the same number by another annotator is another world.
        worlds: how many to learn from, and how many to choose and calibrate by.
        annotators: in turn, world by world.
        expert_times: how often the expert's dozen minutes are repeated among them.
        checked_times: how often the checked minutes of the pool are repeated.
        density: range of the density of animals; 1 is the simulator's usual number.
        faunas: in turn, world by world; none for birds and their neighbours.
        settings: settings of the recipe, for a refinement.
    """

    first: int
    worlds: Mapping[str, int]
    annotators: tuple[Annotator, ...]
    expert_times: int = 1
    checked_times: int = 0
    density: tuple[float, float] = (0.5, 5.0)
    faunas: tuple[Fauna | None, ...] = (None,)
    settings: Mapping[str, Any] = field(default_factory=dict)


_BOX = ["file", "start_s", "end_s", "low_hz", "high_hz", "label"]
_ON_CPU = {"train.batch_size": 16, "train.epochs": 2, "train.validate_every_epochs": 1}
_ALL_ANNOTATORS = (
    Annotator(consistent_style, motifs=0.35),
    Annotator(consistent_style),
    Annotator(consistent_style, motifs=0.2),
    Annotator(varied_style),
)
_REAL = Lesson(
    2_000,
    {"train": 140, "val": 4},
    _ALL_ANNOTATORS,
    expert_times=6,
    checked_times=8,
    density=(0.2, 3.0),  # closer to what people record
    settings={"train.epochs": 20, "train.lr": 1.5e-3},
)
LESSONS = {
    "train": Lesson(0, {"train": 200, "val": 16}, (Annotator(varied_style),)),
    "calls": Lesson(
        500,
        {"train": 40, "val": 5},
        (Annotator(partial(consistent_style, faint_db=(25, 35))),),
        settings=_ON_CPU | {"train.lr": 4e-4, "train.ema_decay": 0.998},
    ),
    "expert": Lesson(
        500,
        {"train": 130, "val": 8},
        (Annotator(partial(consistent_style, faint_db=(32, 45))),),
        expert_times=6,
    ),
    "songs": Lesson(
        500,
        {"train": 180, "val": 10},
        (Annotator(consistent_style, motifs=0.35),),
        expert_times=6,
        settings={
            "train.detector.detail": 16
        },  # a path beside the encoder during training; the average leaves it out
    ),
    "long": Lesson(
        1_000,
        {"train": 200, "val": 10},
        _ALL_ANNOTATORS,
        expert_times=6,
    ),
    "real": _REAL,
    "more_real": replace(_REAL, checked_times=30, settings={"train.epochs": 14, "train.lr": 1e-3}),
    "faunas": replace(
        _REAL,
        first=3_000,
        worlds={"train": 330, "val": 12},
        faunas=(None, None, None, "fish", None, None, "bats"),
        settings={"train.epochs": 6, "train.lr": 1e-3, "train.validate_every_epochs": 2},
    ),
    "last": Lesson(
        800,
        {"train": 24, "val": 20},
        (Annotator(consistent_style, motifs=0.35), Annotator(varied_style)),
        expert_times=3,
        settings=_ON_CPU | {"train.lr": 3e-4, "train.ema_decay": 0.995},
    ),
}


def draw_world(number: int, name: str, pool: Path) -> Simulation:
    """One world: its calls and backgrounds, number of animals, hours and annotator."""
    lesson = LESSONS[name]
    annotator = lesson.annotators[(number - lesson.first) % len(lesson.annotators)]
    rng = np.random.default_rng([FIRST_SEED, number])
    fauna = lesson.faunas[(number - lesson.first) % len(lesson.faunas)]
    calls = ("procedural", "real", "both")[number % 3]
    settings: dict[str, Any] = {"species": {"procedural": 24, "real": 0, "both": 24}[calls]}
    if fauna is not None:
        settings = {"species": 10, "fauna": fauna}
    elif calls != "procedural":
        settings |= {"calls": pool, "call_labels": CALL_LABELS, "call_speeds": (0.3, 1.2)}
    if rng.random() < 0.5:
        settings |= {"backgrounds": pool, "background_labels": NOISE_LABELS}
    first = float(rng.choice([0.0, 4.0, 5.0, 8.0, 17.0]))
    if fauna is not None:
        first = 19.0  # when bats call, and fish do
    return Simulation(
        recordings=RECORDINGS,
        duration_s=60.0,
        sites=6,
        days=2,
        ood_sites=0,
        ood_days=0,
        seed=FIRST_SEED + number,
        density=float(np.exp(rng.uniform(*np.log(lesson.density)))),
        hours=(first, first + 5.0),
        style=annotator.style(rng),
        motifs=annotator.motifs,
        distance=float(np.exp(rng.uniform(np.log(0.15), np.log(1.2)))),
        format="wav",
        **settings,
    )


def make_worlds(data: Path, lesson: str, options: argparse.Namespace) -> list[tuple[Path, str]]:
    """Simulate the worlds that are not there yet; returns each world's folder and split."""
    counts = LESSONS[lesson].worlds.items()
    splits = [split for split, n in counts for _ in range(max(2, round(n * options.worlds)))]
    first = LESSONS[lesson].first
    tasks = [(data / f"world_{first + k:03d}", first + k, lesson, options.pool) for k in range(len(splits))]
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        for done, message in enumerate(pool.map(_make_world, tasks), start=1):
            print(f"world {done} of {len(tasks)}: {message}", flush=True)
    return [(task[0], split) for task, split in zip(tasks, splits, strict=True)]


def _make_world(task: tuple[Path, int, str, Path]) -> str:
    folder, number, lesson, pool = task
    if (folder / "boxes.csv").exists():
        return "there already"
    counts = simulate_dataset(folder, draw_world(number, lesson, pool))
    return f"{counts.boxes} boxes"


def gather_dataset(
    data: Path, lesson: Lesson, worlds: list[tuple[Path, str]], options: argparse.Namespace
) -> None:
    """One dataset of all worlds, the expert's training part and the checked pieces, as often as the lesson says."""
    recordings, boxes = [], []
    for folder, split in worlds:
        table, drawn = pd.read_csv(folder / "recordings.csv"), pd.read_csv(folder / "boxes.csv")
        for some in (table, drawn):
            some["file"] = f"{folder.name}/audio/" + some["file"]
        table["site"], table["split"] = f"{folder.name}_" + table["site"], split
        recordings.append(table)
        boxes.append(drawn[_BOX])
    real = [] if options.expert is None else [(options.expert, lesson.expert_times)]
    if lesson.checked_times:
        real.append((checked_minutes(options.pool, options.work / "checked"), lesson.checked_times))
    for folder, times in real:
        table, drawn = pd.read_csv(folder / "recordings.csv"), pd.read_csv(folder / "boxes.csv")
        table = table.drop(columns="licence", errors="ignore")
        for k in range(times):
            # once is enough to choose by
            own = table[table["split"].isin(["train", "val"] if k == 0 else ["train"])]
            where = data / f"{folder.name}_{k}"
            where.mkdir(exist_ok=True)
            for name in own["file"]:
                inside = folder / "audio" / name if (folder / "audio" / name).exists() else folder / name
                if not (where / name).exists():
                    (where / name).symlink_to(inside.resolve())
            recordings.append(own.assign(file=f"{where.name}/" + own["file"]))
            drawn_here = drawn[drawn["file"].isin(own["file"])]
            boxes.append(drawn_here.assign(file=f"{where.name}/" + drawn_here["file"])[_BOX])
    pd.concat(recordings).to_csv(data / "recordings.csv", index=False)
    pd.concat(boxes).to_csv(data / "boxes.csv", index=False)
    print(json.dumps({"minutes": sum(map(len, recordings)), "boxes": sum(map(len, boxes))}))


def is_held_back(clip: str) -> bool:
    """Whether a checked clip is to choose and calibrate by, not to learn from."""
    return crc32(clip.encode()) % 4 == 0


def checked_minutes(pool: Path, out: Path) -> Path:
    """The pieces of the pool that were boxed by eye, end to end, some minutes to learn from and some to choose by.

    ``default_model_checked.csv`` has a row for every box (times from the start of the piece), and one without numbers
    for a piece in which there is nothing to box. All pieces of a clip are on the same side.
    """
    if (out / "boxes.csv").exists():
        return out
    out.mkdir(parents=True, exist_ok=True)
    table = pd.read_csv(CHECKED)
    table["split"] = ["val" if is_held_back(name) else "train" for name in table["file"]]
    table["source"] = table["file"].str.partition("/")[
        0
    ]  # calibration compares sources, so no minute mixes them
    recordings: list[dict[str, object]] = []
    boxes: list[pd.DataFrame] = []
    for (split, source), pieces in table.groupby(["split", "source"]):
        drawn = list(pieces.groupby(["file", "from_s", "to_s"], sort=False))
        rest = iter(own.dropna(subset="start_s") for _, own in drawn)
        for minute in group_by_minute(_read_pieces(pool, [key for key, _ in drawn])):
            name, begins_s = f"checked_{len(recordings):03d}.wav", 0.0
            for sound in minute:
                own = next(rest)
                times = {at: own[at] + begins_s for at in ("start_s", "end_s")}
                boxes.append(own.assign(**times, file=name, label=""))
                begins_s += len(sound) / RATE
            sf.write(out / name, np.concatenate(minute).clip(-1, 1), RATE, subtype="PCM_16")
            facts = {"file": name, "site": source, "split": split, "duration_s": begins_s}
            recordings.append(facts | {"sample_rate": RATE})
    pd.DataFrame(recordings).to_csv(out / "recordings.csv", index=False)
    pd.concat(boxes)[_BOX].to_csv(out / "boxes.csv", index=False)
    return out


def _read_pieces(pool: Path, pieces: Iterable[tuple[str, float, float]]) -> Iterator[Sound]:
    """The sound of each piece of a clip, cut to its span; a clip is read once for consecutive pieces."""
    cached: dict[str, Sound] = {}
    for file, from_s, to_s in pieces:
        if file not in cached:
            cached = {file: read(pool / file, sample_rate=RATE)}
        yield cached[file][round(from_s * RATE) : round(to_s * RATE)]


def pack(model: Path, out: Path, options: argparse.Namespace) -> None:
    """Write the model to ship: half-precision weights, licence and attribution."""
    found, card = load_checkpoint(model)
    kept = (
        "kind",
        "seed",
        "epoch",
        "step",
        "chunks",
        "metrics",
        "recipe",
        "commit",
    )  # only facts that name no folder of this machine
    provenance = {key: card.provenance[key] for key in kept if key in card.provenance}
    provenance |= {"data": DATA, "made_by": "scripts/default_model.py"}
    card = card.model_copy(update={"licence": "Apache-2.0", "provenance": provenance})
    card = save_checkpoint(out, found, card, dtype="float16")
    clips = pd.read_csv(options.pool / "clips.csv")
    owed = clips[clips["licence"].str.contains("BY")]
    owed[["file", "source", "licence"]].to_csv(out / "attribution.csv", index=False)
    page = hub_readme(card, "mast default").replace("hf://OWNER/mast default", "default")
    (out / "README.md").write_text(page + ATTRIBUTION, encoding="utf-8")
    size = sum(path.stat().st_size for path in out.iterdir()) / 1e6
    print(f"{out}: {size:.1f} MB")


if __name__ == "__main__":
    main()
