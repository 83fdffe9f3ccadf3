"""`mast cluster`: groups of events that sound alike, the most novel first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mast.cli.options import Quiet, Seed, StoreArgument, count, progress_counter, say, upper_edge
from mast.wording import counted

if TYPE_CHECKING:
    import pandas as pd

    from mast.grid import FrontEnd
    from mast.reports.contact_sheet import Locate, Sheet
    from mast.retrieval.clusters import AnnotatedEvents, ClusterModel
    from mast.retrieval.event_store import EventStore

_MAX_KNOWN = 20_000  # annotated events that novelty is measured against


def cluster(
    store: StoreArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder for the results.")],
    annotated: Annotated[
        str | None,
        typer.Option(
            help="Another store, of the same model, whose events are annotated; in addition to labels in STORE."
        ),
    ] = None,
    audio: Annotated[
        list[Path] | None,
        typer.Option(
            "--audio", help="Folder of the recordings, for contact sheets; may be given several times."
        ),
    ] = None,
    min_cluster: Annotated[int, count(low=2, help="Minimum number of events in a group.")] = 10,
    fit_at_most: Annotated[
        int,
        count(
            low=30,
            help="Find groups among at most this many events; the others join their neighbours' groups.",
        ),
    ] = 10_000,
    sheets: Annotated[int, count(low=0, help="Groups that get a contact sheet, the most novel first.")] = 40,
    tiles: Annotated[int, count(high=10_000, help="Events on a contact sheet.")] = 24,
    band: Annotated[
        float | None, upper_edge(help="Upper edge of the pictures; by default that of the store's band.")
    ] = None,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Find groups of events that sound alike, and rank them by how much they differ from everything annotated.

    Groups come from t-SNE and HDBSCAN on the store's embeddings; the same store and --seed give the same groups.
    Novelty is the distance (1 − cosine) to the nearest event with a label, in STORE or in --annotated; beyond is the
    share of annotated events that have a nearer annotated neighbour than that: 0.99 means something new.

    Writes clusters.csv and clusters.parquet (id, event, cluster, x, y, novelty), summary.csv (a row for each group, the
    most novel first, or the largest where nothing is annotated), map.png, and with --audio contact sheets of the first
    groups: sheets/*.png, and index.html with sound. The events on a sheet are drawn at random from the group, and
    shown with the most typical first.

    \b
    Example:
      mast cluster events --audio recordings/ --out clusters
    """
    from mast.errors import ConfigError, MastError
    from mast.files import holds_files
    from mast.retrieval.clusters import fit_clusters, summarise_clusters
    from mast.retrieval.event_store import EventStore

    if holds_files(out):
        raise ConfigError(f"{out}: exists already; choose a new --out")
    opened = EventStore.open(store)
    if not len(opened):
        raise MastError(f"{store}: holds no events; add some with `mast embed`")
    other = EventStore.open(annotated) if annotated is not None else None
    if other is not None:
        opened.refuse_other_model(other.model_id, other.width, other.band_hz)
    say(f"{counted(len(opened), 'event')}; finding groups …", quiet=quiet)
    ids, labelled = _sorted_ids(opened)
    model = fit_clusters(opened.vectors(ids[:fit_at_most]), min_cluster=min_cluster, seed=seed)
    known = _known_events(opened, labelled, other, model.middle)
    table = _assign_groups(opened, model, known, quiet)
    summary = summarise_clusters(table)
    _write_tables(table, summary, out, seed)
    page = None
    if audio and sheets:
        page = _write_sheets(table, summary, out, audio, (sheets, tiles), band or opened.band_hz, seed, quiet)
    groups = int((summary["cluster"] >= 0).sum())
    alone = int((table["cluster"] < 0).sum())
    ranked = (
        f"the most novel first, against {len(known):,} annotated events"
        if len(known)
        else "the largest first, because nothing is annotated"
    )
    first_page = page or out / "map.png"
    hint = "" if audio else "; contact sheets need --audio, the folder of the recordings"
    typer.echo(
        f"{counted(groups, 'group')} among {counted(len(table), 'event')} "
        f"({alone:,} in none), {ranked} → {out}; open {first_page}{hint}."
    )


def _sorted_ids(store: EventStore) -> tuple[list[str], list[str]]:
    """All ids in the order of a fixed random draw, and those of labelled events.

    An id is a hash, so ids in alphabetical order are a random order that is the same every time.
    """
    all_ids: list[str] = []
    labelled: list[str] = []
    for batch in store.batches():
        all_ids += batch.events["id"].tolist()
        labelled += batch.events.loc[batch.events["label"] != "", "id"].tolist()
    return sorted(all_ids), sorted(labelled)


def _known_events(
    store: EventStore, labelled: list[str], other: EventStore | None, middle: object
) -> AnnotatedEvents:
    """The annotated events of this store and of the other."""
    import numpy as np

    from mast.retrieval.clusters import AnnotatedEvents

    parts, labels = [], []
    for source, ids in ((store, labelled), *(((other, _sorted_ids(other)[1]),) if other is not None else ())):
        chosen = ids[:_MAX_KNOWN]
        if chosen:
            parts.append(source.vectors(chosen))
            labels += source.get(chosen)["label"].tolist()
    vectors = np.concatenate(parts) if parts else np.zeros((0, store.width), dtype=np.float32)
    return AnnotatedEvents(vectors, labels, np.asarray(middle))


def _assign_groups(
    store: EventStore, model: ClusterModel, known: AnnotatedEvents, quiet: bool
) -> pd.DataFrame:
    """Every event with its group, place and novelty, by recording and time."""
    import pandas as pd

    parts = []
    with progress_counter(quiet, "assign", "events", len(store)) as advance:
        for batch in store.batches():
            grouping, novelty = model.assign(batch.vectors), known.novelty(batch.vectors)
            parts.append(
                batch.events.assign(
                    cluster=grouping.cluster,
                    x=grouping.place[:, 0].astype("float64").round(4),
                    y=grouping.place[:, 1].astype("float64").round(4),
                    novelty=novelty.distance.round(6),
                    beyond=novelty.beyond.round(4),
                    nearest_label=novelty.label,
                )
            )
            advance(len(batch.events))
    return pd.concat(parts).sort_values(["recording", "start_s", "low_hz", "id"], ignore_index=True)


def _write_tables(table: pd.DataFrame, summary: pd.DataFrame, out: Path, seed: int) -> None:
    from mast.files import write_atomic
    from mast.reports.cluster_map import draw_map
    from mast.reports.spectrogram import figure_png
    from mast.table_files import write_table

    write_table(out / "clusters.csv", table)
    write_table(out / "clusters.parquet", table)
    write_atomic(out / "summary.csv", summary.to_csv(index=False, float_format="%.6g").encode())
    write_atomic(out / "map.png", figure_png(draw_map(table, seed=seed)))


def _write_sheets(
    table: pd.DataFrame,
    summary: pd.DataFrame,
    out: Path,
    audio: list[Path],
    wanted: tuple[int, int],
    band: float | None,
    seed: int,
    quiet: bool,
) -> Path:
    """A sheet for each of the first groups, and one page for all."""
    from mast.grid import FrontEnd
    from mast.reports.contact_sheet import make_locator, scale_note, sheet_front_end, write_sheets
    from mast.reports.html_page import embedded_png, paragraph

    locate = make_locator(audio)
    front_end = FrontEnd.for_band(band) if band is not None else sheet_front_end(table)
    rows: list[dict[Any, Any]] = summary.head(wanted[0]).to_dict("records")
    made: list[Sheet] = []
    with progress_counter(quiet, "draw", "sheets", len(rows)) as advance:
        for row in rows:
            own = _sample_events(table[table["cluster"] == row["cluster"]], wanted[1], seed)
            made.append(_make_sheet(row, own, locate, front_end, scale_note(own, front_end)))
            advance()
    names = [f"cluster-{row['cluster']:03d}" if row["cluster"] >= 0 else "no-cluster" for row in rows]
    left = len(summary) - len(rows)
    groups = counted(int((summary["cluster"] >= 0).sum()), "group")
    first = "the most novel" if summary["novelty"].notna().any() else "the largest"
    intro = paragraph(
        f"{counted(len(table), 'event')} in {groups}, {first} first. Click a tile to hear it."
        + (" The other groups are in summary.csv." if left > 0 else "")
    )
    intro += embedded_png(
        (out / "map.png").read_bytes(),
        "Every point is an event; points close together sound alike.",
        small=True,
    )
    return write_sheets(out, "Groups of events", intro, made, names)[0]


def _sample_events(own: pd.DataFrame, n: int, seed: int) -> pd.DataFrame:
    """Some events of a group at random, those nearest its middle on the plane first."""
    from mast.retrieval.clusters import Grouping, distance_from_middle

    grouping = Grouping(own["cluster"].to_numpy(), own[["x", "y"]].to_numpy())
    some = own.assign(away=distance_from_middle(grouping)).sample(min(n, len(own)), random_state=seed)
    return some.sort_values(["away", "id"]).drop(columns="away").reset_index(drop=True)


def _make_sheet(
    facts: dict[Any, Any], own: pd.DataFrame, locate: Locate, front_end: FrontEnd, scale: str
) -> Sheet:
    from mast.reports.contact_sheet import Sheet, make_tiles

    title = f"Group {facts['cluster']}" if facts["cluster"] >= 0 else "In no group"
    note = [f"{counted(facts['events'], 'event')}, {counted(facts['recordings'], 'recording')}"]
    if facts["sites"]:
        note.append(counted(facts["sites"], "site"))
    if facts["annotated"]:
        note.append(f"{facts['annotated']} annotated, {facts['label_share']:.0%} of them {facts['label']}")
    if facts["novelty"] == facts["novelty"]:
        near = f" (nearest: {facts['nearest_label']})" if facts["nearest_label"] else ""
        note.append(f"novelty {facts['novelty']:.2f}{near}")
    tiles = make_tiles(own, locate, front_end=front_end)
    return Sheet(title, f"{'; '.join(note)}; {len(tiles)} of them drawn at random; {scale}.", tiles)
