"""`mast experiment`: the paper's tables and figures."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mast.cli.options import Quiet, Seed, say, step_progress
from mast.cli.recipes import Band, Settings
from mast.errors import ConfigError, MastError
from mast.wording import counted

if TYPE_CHECKING:
    from mast.data.splits import SplitConfig
    from mast_studies.collect import StudyOutput
    from mast_studies.runner import Runner
    from mast_studies.studies import Study
    from mast_studies.systems import System
    from mast_studies.training_runs import StudyData

_SEVERAL_STUDIES = ("list", "all", "report")
Failures = dict[tuple[str, int], str]  # by system and seed: why
_Division = Literal["auto", "recording", "time", "one-out"]


def experiment(
    name: Annotated[
        str,
        typer.Argument(
            help="A study (`list` shows them), `all`, or `report` for everything that was run, on one page."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            help="The labelled dataset with its splits; {seed} stands for the seed's number. Tables show this dataset "
            "only; without it, all that are in WORK."
        ),
    ] = None,
    unlabelled: Annotated[
        list[str] | None,
        typer.Option("--unlabelled", "-u", help="A folder of recordings nobody labelled; may be repeated."),
    ] = None,
    generic: Annotated[
        list[Path] | None,
        typer.Option(help="Start of the AudioMAE system: pretrained.pth, a model, or folders of clips."),
    ] = None,
    elsewhere: Annotated[
        list[Path] | None,
        typer.Option(help="Also measure every system on this labelled dataset; may be repeated."),
    ] = None,
    work: Annotated[
        Path,
        typer.Option("--work", "-w", help="Folder of training runs and what was found; resumes from there."),
    ] = Path("runs/experiments"),
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of tables and figures.")] = Path(
        "results/experiments"
    ),
    preset: Annotated[
        str,
        typer.Option(
            "--preset",
            "-p",
            help="tiny, small, base, paper, half_hour, premise, real_sets, label_budget, or a TOML file.",
        ),
    ] = "base",
    seeds: Annotated[str | None, typer.Option(help="Several seeds, as in 0,1; instead of --seed.")] = None,
    systems: Annotated[
        str | None,
        typer.Option(help="Only these systems, as in mast,fcos, so that processes can share the work."),
    ] = None,
    budgets: Annotated[
        str | None, typer.Option(help="Chunks with labels in label-budget, as in 32,64.")
    ] = None,
    split: Annotated[
        _Division,
        typer.Option(
            help="How a dataset without a split column is divided, 70/15/15; where the column has train and "
            "out-of-domain parts only, train is divided 70/30 and nothing tests in domain. one-out: each seed tests on "
            "another recording, in turn, and trains on the rest."
        ),
    ] = "auto",
    dataset_name: Annotated[str | None, typer.Option("--name", help="The dataset's name in tables.")] = None,
    collect_only: Annotated[
        bool, typer.Option("--collect-only", help="Train nothing: tables and figures of what was found.")
    ] = False,
    band: Band = None,
    settings: Settings = None,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Make a table or figure of the paper, from a dataset to a file.

    Trains the systems that a study compares, each once for all studies, and keeps what they find in the test parts in
    WORK. Then writes OUT/NAME.csv, NAME.md, NAME.json and NAME.png. A stopped run resumes; what is in WORK
    can be collected on any machine.

    \b
    Example:
      mast experiment list
      mast experiment ood --data bench-{seed}/labelled --unlabelled bench-{seed}/unlabelled --seeds 0,1 --preset small
      mast experiment report --work runs/experiments --out results/experiments
    """
    from mast_studies.studies import BUDGETS, all_studies, choose_systems, find_study

    studies = all_studies(tuple(_parse_numbers(budgets, "--budgets")) if budgets else BUDGETS)
    if name == "list":
        _print_studies(list(studies.values()))
        return
    chosen = list(studies.values()) if name in _SEVERAL_STUDIES else [find_study(name, studies)]
    numbers = _parse_numbers(seeds, "--seeds") if seeds else [seed]
    failures: Failures = {}
    requested: set[tuple[str, int]] = set()
    if name != "report" and not collect_only:
        if data is None:
            raise ConfigError(
                f"experiment {name}: no dataset is given; add --data FOLDER, or --collect-only for what was run before"
            )
        if name == "all" and not elsewhere:
            chosen = [study for study in chosen if not study.elsewhere]
        if not elsewhere and any(study.elsewhere for study in chosen):
            raise ConfigError(f"experiment {name}: no other dataset is given; add --elsewhere FOLDER")
        wanted = [word.strip() for word in systems.split(",")] if systems else None
        train = choose_systems(chosen, wanted)
        sources = {
            n: _study_data(data, unlabelled or [], generic, elsewhere, dataset_name, n) for n in numbers
        }
        sources = {
            n: replace(_with_split(source, split, work, n), whole=all(study.whole for study in chosen))
            for n, source in sources.items()
        }
        requested = {(system.name, n) for system in train for n in numbers}
        only_study = None if name == "all" else chosen[0]
        embed = {system.name for study in chosen if study.summarise is not None for system in study.systems}
        # `all` must not fail because of budgets that nobody requested
        budgeted = [] if name == "all" and not budgets else train
        failures = _run(
            train,
            embed,
            studies,
            sources,
            work,
            (preset, band, settings),
            study=only_study,
            budgeted=budgeted,
            quiet=quiet,
        )
    if failures and requested <= failures.keys():
        raise MastError(_failure_message(name, failures, tables=False))
    collected = _collect(
        chosen,
        work,
        out,
        (requested, failures),
        data=data,
        dataset_name=dataset_name,
        seeds=numbers if seeds else None,
        page=name in _SEVERAL_STUDIES,
    )
    notes: dict[str, list[str]] = {}
    for one in collected:
        missing = [system for system in one.missing if system not in {failed for failed, _ in failures}]
        if one.files and missing:
            say(f"{one.study.name}: without {', '.join(missing)}, which are not there yet", quiet=quiet)
        for note in one.notes:
            notes.setdefault(note, []).append(one.study.name)
        for path in one.files:
            typer.echo(path)
    for note, names in notes.items():
        say(f"{', '.join(names)}: {note}", quiet=quiet)
    if name in _SEVERAL_STUDIES:
        typer.echo(out / "report.html")
    if failures:
        raise MastError(_failure_message(name, failures, tables=any(one.files for one in collected)))


def _run(
    train: Sequence[System],
    embed: set[str],
    studies: dict[str, Study],
    sources: dict[int, StudyData],
    work: Path,
    how: tuple[str, float | None, list[str] | None],
    *,
    study: Study | None,
    budgeted: Sequence[System],
    quiet: bool,
) -> Failures:
    """Train, measure and embed; returns what failed.

    Mistakes are reported before hours of training: the dataset must have a part that ``study`` measures (if a single
    study runs), and enough chunks for the label budgets of the systems in ``budgeted``.
    """
    from mast.grid import FrontEnd
    from mast.runs import Reporter
    from mast.training.recipe import parse_override
    from mast_studies.presets import load_preset
    from mast_studies.runner import Runner
    from mast_studies.studies import systems_by_name
    from mast_studies.training_runs import TrainingRuns

    preset_name, band, settings = how
    overrides = dict(parse_override(text) for text in settings or [])
    if band is not None:
        overrides["front_end"] = FrontEnd.for_band(band).model_dump()
    preset, known = load_preset(preset_name, overrides), systems_by_name(studies)
    preset.check_names({*known, *(system.detector for system in known.values())})
    show = Reporter(say=lambda text: say(text, quiet=quiet), bar=lambda what: step_progress(quiet, what))
    runners = {
        n: Runner(TrainingRuns(source, work, preset, known, seed=n, show=show))
        for n, source in sources.items()
    }
    if study is not None and study.parts and study.summarise is None:
        _require_parts(study, list(runners.values()))
    for runner in runners.values():
        runner.check_budgets(budgeted)
    failures: Failures = {}
    try:
        for number in list(runners):
            failed = runners.pop(number).run(train, embed=embed)  # a seed's sound does not stay in memory
            failures |= {(system, number): why for system, why in failed.items()}
    except KeyboardInterrupt:
        typer.echo(f"mast: stopped; what is done is kept in {work}, the same command resumes.", err=True)
        raise typer.Exit(130) from None
    return failures


def _failure_message(name: str, failures: Failures, *, tables: bool) -> str:
    """What failed, why, and what that means for the tables; ``tables``: whether any were written."""
    systems = len({system for system, _ in failures})
    left_out = f"and {'is' if systems == 1 else 'are'} left out of the tables"
    end = f" {left_out}" if tables else ", so no table was written or changed"
    reasons = [f"{system} (seed {seed}): {why}" for (system, seed), why in failures.items()]
    return f"experiment {name}: {counted(systems, 'system')} failed{end}; {'; '.join(reasons)}"


def _require_parts(study: Study, runners: Sequence[Runner]) -> None:
    """Refuse a dataset that has none of the parts that the study measures."""
    from mast_studies.studies import missing_parts_message

    if not any(part in runner.training_runs.parts for runner in runners for part in study.parts):
        raise MastError(missing_parts_message(runners[0].source.name, study.parts))


def _collect(
    chosen: Sequence[Study],
    work: Path,
    out: Path,
    run: tuple[Collection[tuple[str, int]], Failures],
    *,
    data: str | None,
    dataset_name: str | None,
    seeds: list[int] | None,
    page: bool,
) -> list[StudyOutput]:
    """Tables and figures of what is in the work folder.

    ``run``: the systems and seeds requested in this call, and those that failed. What failed is left out, even if there
    are results of an earlier call; a study is not written if everything requested for it failed.
    """
    from mast_studies.collect import StudyOutput, collect
    from mast_studies.page import write_page
    from mast_studies.study_tables import Archive

    name = dataset_name or (None if data is None else _dataset_name(data))
    requested, failures = run
    archive = Archive(work, datasets=None if name is None else [name], seeds=seeds, left_out=failures.keys())
    if not archive.trials:
        others = Archive(work, seeds=seeds).dataset_names()
        if others:
            raise MastError(
                f"{work}: nothing was found in '{name}', only in {', '.join(others)}; choose one with --name"
            )
        raise MastError(
            f"{work}: nothing was found here yet; run a study with --data and the same --work first"
        )
    given = {}
    if name is not None and data is not None:
        given[name] = Path(data.replace("{seed}", str(archive.trials[0].seed)))
    collected = []
    for study in chosen:
        names = {system.name for system in study.systems}
        own = {one for one in requested if one[0] in names}
        if own and own <= failures.keys():
            note = "everything requested failed, so no table was written"
            collected.append(StudyOutput(study, [], [], [], notes=[note]))
        else:
            collected.append(collect(study, archive, out, data=given))
    first = collected[0]
    if not page and not first.files and failures:
        return collected  # the caller reports the failures
    if not page and not first.files and first.notes:
        raise MastError("; ".join(first.notes))
    if not page and not first.files:
        what = "embedded" if chosen[0].summarise is not None else "measured"
        raise MastError(
            f"{work}: none of the systems of {chosen[0].name} was {what} on "
            f"{' or '.join(chosen[0].parts) or 'another dataset'}; it needs {', '.join(first.missing)}"
        )
    if page:
        write_page(collected, out)
    return collected


def _study_data(
    data: str,
    unlabelled: list[str],
    generic: list[Path] | None,
    elsewhere: list[Path] | None,
    dataset_name: str | None,
    seed: int,
) -> StudyData:
    from mast_studies.training_runs import StudyData

    def of_seed(text: str) -> Path:
        return Path(text.replace("{seed}", str(seed)))

    return StudyData(
        name=dataset_name or _dataset_name(data),
        labelled=of_seed(data),
        unlabelled=tuple(of_seed(text) for text in unlabelled),
        generic=tuple(generic or ()),
        elsewhere=tuple(elsewhere or ()),
    )


def _with_split(source: StudyData, by: _Division, work: Path, seed: int) -> StudyData:
    """The dataset with its division into training and test parts."""
    from mast_studies.folds import write_fold
    from mast_studies.found import Trial

    if by != "one-out":
        return replace(source, split=_choose_split(source.labelled, by))
    folder = Trial.at(work, source.name, seed).folder / "fold"
    return replace(source, labelled=write_fold(source.labelled, folder, seed))


def _choose_split(folder: Path, by: Literal["auto", "recording", "time"]) -> SplitConfig | None:
    """How a dataset is divided; None leaves it to its split column and the defaults.

    If every recording is marked train or out of domain, the test parts are already given. Cutting another test part
    from train would leave small datasets hardly a box to choose thresholds on.
    """
    from mast.annotations.tables import read_table
    from mast.data.splits import NO_TEST, SplitConfig

    listing = folder / "recordings.csv"
    if listing.is_file():
        listed = read_table(listing)
        column = listed.find("split")
        parts = {text.strip().lower() for text in listed.texts(column)} if column else set()
        away = {part for part in parts if part.endswith("_ood")}
        if away and parts - away == {"train"}:
            return SplitConfig(by=by, fractions=NO_TEST)
    return None if by == "auto" else SplitConfig(by=by)


def _dataset_name(data: str) -> str:
    """bench-{seed}/labelled → bench; data/birdeep → birdeep."""
    path = Path(data)
    own = path.parent.name if path.name == "labelled" and path.parent.name else path.name
    return own.replace("{seed}", "").strip("-_ ") or "dataset"


def _parse_numbers(text: str, option: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option}: '{text}' is not a list of whole numbers such as 0,1") from None


def _print_studies(studies: Sequence[Study]) -> None:
    width = max(len(study.name) for study in studies)
    for study in studies:
        typer.echo(f"{study.name:<{width}}  {study.title} ({study.paper})")
        systems = [system.name for system in study.systems]
        typer.echo(f"{'':<{width}}  {', '.join(systems)}")
