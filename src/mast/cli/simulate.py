"""`mast simulate`: labelled soundscapes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from mast.cli.options import Quiet, Seed, count, lock_folder, number, progress_counter, score, seconds
from mast.wording import counted

_BENCHMARK = "soundscape-bench"
# options that a benchmark leaves to its user; all others are fixed, which makes it a benchmark
_FREE_OPTIONS = {
    "out",
    "benchmark",
    "calls",
    "backgrounds",
    "unlabelled_minutes",
    "workers",
    "quiet",
    "debug",
    "seed",
}


def simulate(
    ctx: typer.Context,
    out: Annotated[Path, typer.Argument(help="Folder to write: new, empty, or an earlier simulation.")],
    recordings: Annotated[int, count(help="How many recordings.")] = 12,
    duration: Annotated[float, seconds(help="Seconds of each recording.")] = 60.0,
    sites: Annotated[int, count(help="Places; the last quarter is held out as site_ood.")] = 4,
    days: Annotated[int, count(help="Days; the last third is held out as temporal_ood.")] = 6,
    species: Annotated[
        int | None,
        count(low=0, help="Procedural species; 24 by default, none where --calls is given."),
    ] = None,
    density: Annotated[float, number(low=0.0, high=1e4, help="Multiplies the number of animals.")] = 1.0,
    motifs: Annotated[float, score(help="Share of species that sing a few notes again and again.")] = 0.0,
    fauna: Annotated[
        Literal["bats", "fish"] | None,
        typer.Option(help="Only bats (--tape 16 --rate 256000) or fish (--tape 0.25 --rate 4000)."),
    ] = None,
    hours: Annotated[str, typer.Option(help="Hours of the day at which recordings start.")] = "0-24",
    rate: Annotated[int, count(low=500, high=10_000_000, help="Sample rate in Hz.")] = 16_000,
    tape: Annotated[
        float,
        number(
            low=1e-3,
            high=1e3,
            help="Tape speed: 24 with --rate 384000 sounds like bats, 0.25 with --rate 4000 like fish.",
        ),
    ] = 1.0,
    gap: Annotated[float, seconds(help="Calls of one animal closer than this (s) share a box.")] = 0.25,
    tightness: Annotated[
        float,
        number(
            low=-200.0,
            high=200.0,
            help="dB above the background at which an event becomes visible; higher means tighter boxes.",
        ),
    ] = 7.0,
    below_peak: Annotated[
        float, number(low=0.0, high=200.0, help="dB below its own peak down to which an event is boxed.")
    ] = 45.0,
    calls: Annotated[
        Path | None, typer.Option(help="Folder of isolated call clips to use as callers.")
    ] = None,
    call_labels: Annotated[
        str,
        typer.Option(help="Use only clips whose label, source or path matches, as in frog,crow,clo43sd/*."),
    ] = "",
    backgrounds: Annotated[
        Path | None,
        typer.Option(help="Folder of real backgrounds; animals already in them are not boxed."),
    ] = None,
    background_labels: Annotated[str, typer.Option(help="Use only backgrounds that match.")] = "",
    quiet_share: Annotated[
        float, score(help="Use only the calmest share of each real background, to avoid animals in it.")
    ] = 1.0,
    format: Annotated[str, typer.Option(help="flac or wav, 16 bit.")] = "flac",
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Also list the calls nobody could see (hidden.csv).")
    ] = False,
    benchmark: Annotated[
        str | None,
        typer.Option(
            help=f"{_BENCHMARK}: OUT/labelled and OUT/unlabelled of fixed sizes; only --seed (its number), "
            "--calls, --backgrounds, --unlabelled-minutes and --workers may be given with it."
        ),
    ] = None,
    unlabelled_minutes: Annotated[
        int | None,
        count(help="Minutes of sound without boxes in the benchmark; 6000 by default, about 4 GB."),
    ] = None,
    workers: Annotated[
        int, count(high=10_000, help="Processes; their number does not change the result.")
    ] = 1,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Make recordings in which every call is known: audio, recordings.csv, boxes.csv.

    Species, sites and days really differ, so what is learnt at some sites and days can be tested at others. Boxes are
    what can be seen of each call over its background; boxes.csv gives label, SNR and distance of each. The same seed
    gives the same files.

    \b
    Example:
      mast simulate simulated/ --recordings 12 --duration 60 --sites 4 --days 6 --seed 1
      mast simulate bench-0/ --benchmark soundscape-bench --seed 0 --workers 8
    """
    if benchmark is not None:
        _check_benchmark(ctx, benchmark)
        _make_benchmark(out, calls, backgrounds, unlabelled_minutes, seed, workers, quiet)
        return
    from pydantic import ValidationError

    from mast.data.simulate.dataset import Simulation, simulate_dataset
    from mast.data.simulate.visible import BoxStyle
    from mast.errors import ConfigError

    if unlabelled_minutes is not None:
        raise ConfigError(f"--unlabelled-minutes is for the benchmark; give --benchmark {_BENCHMARK} with it")
    try:
        low, _, high = hours.partition("-")
        span = (float(low), float(high))
    except ValueError:
        raise ConfigError(f"--hours {hours}: expected two hours of one day, as in 5-9") from None
    try:
        simulation = Simulation(
            recordings=recordings,
            duration_s=duration,
            sites=sites,
            days=days,
            seed=seed,
            species=species if species is not None else (24 if calls is None else 0),
            density=density,
            motifs=motifs,
            fauna=fauna,
            sample_rate=rate,
            tape=tape,
            hours=span,
            style=BoxStyle(gap_s=gap, above_background_db=tightness, below_peak_db=below_peak),
            calls=calls,
            call_labels=_split_patterns(call_labels),
            backgrounds=backgrounds,
            background_labels=_split_patterns(background_labels),
            quiet=quiet_share,
            format=format,
            hidden=hidden,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"simulate: {'.'.join(map(str, first['loc']))}: {first['msg']}, got {first['input']}"
        ) from None

    with lock_folder(out), progress_counter(quiet, "simulate", "recordings", recordings) as advance:
        counts = simulate_dataset(out, simulation, workers=workers, on_recording=advance)
    hours_written = counts.recordings * duration / 3_600
    typer.echo(
        f"{counted(counts.recordings, 'recording')} ({hours_written:.2f} h) from {counted(sites, 'site')} and "
        f"{counted(days, 'day')}, {counted(counts.boxes, 'box')}, "
        f"{counted(counts.empty, 'recording')} without any: {out}"
    )


def _check_benchmark(ctx: typer.Context, name: str) -> None:
    """Refuse an unknown benchmark, and options that would change it."""
    from mast.errors import ConfigError

    if name != _BENCHMARK:
        raise ConfigError(f"--benchmark {name}: no such benchmark; there is {_BENCHMARK}")
    for option in set(ctx.params) - _FREE_OPTIONS:
        source = ctx.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigError(
                f"--{option.replace('_', '-')} is fixed by the benchmark; leave it out, or simulate without "
                "--benchmark"
            )


def _make_benchmark(
    out: Path,
    calls: Path | None,
    backgrounds: Path | None,
    unlabelled_minutes: int | None,
    seed: int,
    workers: int,
    quiet: bool,
) -> None:
    from mast.data.soundscape_bench import SoundscapeBench, make_soundscape_bench

    own = {} if unlabelled_minutes is None else {"unlabelled": unlabelled_minutes}
    bench = SoundscapeBench(seed=seed, calls=calls, backgrounds=backgrounds, **own)
    with lock_folder(out), progress_counter(quiet, "simulate", "recordings") as advance:
        sizes = make_soundscape_bench(out, bench, workers=workers, on_recording=advance)
    for part, size in sizes.items():
        boxes = "no boxes" if part == "unlabelled" else counted(size.boxes, "box")
        typer.echo(f"{part}: {counted(size.recordings, 'recording')}, {size.minutes:g} min, {boxes}")
    typer.echo(f"{out / 'labelled'} and {out / 'unlabelled'}")


def _split_patterns(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
