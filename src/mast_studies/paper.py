"""The paper's own numbers, shown next to ours: the data differ, so only the pattern can be compared."""

from __future__ import annotations

from typing import NamedTuple

METRICS = ("precision", "recall", "F1", "mAP", "mIoU")
RETRIEVAL = ("queries", "labels", "Top-1", "Top-5", "mean rank")


class PaperTable(NamedTuple):
    """One table: its place in the paper, the names of the lines, and the values of :func:`paper_metrics`."""

    where: str
    rows: list[tuple[str, list[str]]]


def paper_tables(study: str) -> list[PaperTable]:
    """The tables that a study repeats; none for a figure without numbers."""
    return [
        PaperTable(where, [_row(line) for line in block.strip().splitlines()])
        for where, block in _TABLES.get(study, {}).items()
    ]


def paper_metrics(study: str) -> tuple[str, ...]:
    """The metrics in a study's tables."""
    return RETRIEVAL if study == "retrieval" else METRICS


def _row(line: str) -> tuple[str, list[str]]:
    name, _, numbers = line.partition("|")
    return name.strip(), numbers.split()


_TEST = {
    "Rainforest, in domain": """
Faster R-CNN | 0.6832 0.8390 0.7226 0.7715 0.8590
FCOS | 0.9708 0.6601 0.7858 0.6334 0.9290
YOLO26 | 0.8659 0.3306 0.4309 0.3475 0.8102
DETR | 0.5905 0.7839 0.6501 0.7422 0.8400
AudioMAE | 0.9454 0.6903 0.7775 0.6736 0.9352
MAST | 0.9535 0.7021 0.7916 0.6853 0.9387
MAST + ST | 0.9548 0.6277 0.7338 0.6277 0.9457
""",
    "BIRDeep, in domain": """
Faster R-CNN | 0.3716 0.2061 0.2651 0.1537 0.6587
FCOS | 0.7571 0.8091 0.7822 0.6650 0.6849
YOLO26 | 0.7897 0.7737 0.7816 0.6183 0.7181
DETR | 0.3256 0.7525 0.4545 0.3723 0.6024
AudioMAE | 0.7951 0.6859 0.7364 0.6025 0.6756
MAST | 0.7824 0.7010 0.7395 0.6011 0.6822
MAST + ST | 0.6709 0.9061 0.7709 0.7783 0.7339
""",
}
_OOD = {
    "Rainforest, other days": """
Faster R-CNN | 0.0400 0.2479 0.0689 0.0168 0.4259
FCOS | 0.5072 0.1029 0.1711 0.1145 0.6429
YOLO26 | 0.9459 0.0926 0.1688 0.0909 0.7603
DETR | 0.1463 0.1800 0.1450 0.1316 0.5237
AudioMAE | 0.8178 0.2085 0.3323 0.1636 0.6382
MAST | 0.7810 0.2968 0.4301 0.2577 0.6859
MAST + ST | 0.7120 0.4603 0.5591 0.3340 0.6292
""",
    "Rainforest, other site": """
Faster R-CNN | 0.0497 0.2341 0.0820 0.0281 0.4223
FCOS | 0.5848 0.0892 0.1548 0.0909 0.6513
YOLO26 | 0.9910 0.0849 0.1564 0.0909 0.7484
DETR | 0.1269 0.1758 0.1338 0.1130 0.5607
AudioMAE | 0.8028 0.2113 0.3346 0.1742 0.6677
MAST | 0.7562 0.3169 0.4466 0.2573 0.6824
MAST + ST | 0.6978 0.4838 0.5715 0.3921 0.6420
""",
    "BIRDeep, other days": """
Faster R-CNN | 0.3199 0.1020 0.1547 0.0909 0.5559
FCOS | 0.7269 0.2885 0.4130 0.2116 0.6510
YOLO26 | 0.7559 0.2040 0.3212 0.1520 0.6767
DETR | 0.1923 0.6521 0.2971 0.3585 0.5528
AudioMAE | 0.7959 0.3660 0.5014 0.2983 0.6328
MAST | 0.7618 0.4808 0.5895 0.3838 0.6083
MAST + ST | 0.6755 0.6247 0.6491 0.4280 0.5903
""",
    "BIRDeep, other sites": """
Faster R-CNN | 0.8824 0.0744 0.1372 0.0909 0.5863
FCOS | 0.9725 0.2852 0.4410 0.2592 0.6566
YOLO26 | 0.8889 0.1934 0.3177 0.1675 0.7010
DETR | 0.1334 0.6621 0.2220 0.3032 0.5554
AudioMAE | 0.7266 0.4284 0.5390 0.3217 0.6072
MAST | 0.6476 0.5059 0.5680 0.3803 0.6001
MAST + ST | 0.6522 0.6438 0.6434 0.4414 0.5943
""",
}
_PIPELINE = {
    "Rainforest, other site": """
MAST (full) | 0.7562 0.3169 0.4466 0.2573 0.6824
− contrastive loss | 0.6536 0.3327 0.4410 0.2434 0.6555
− audio-aware adapter | 0.6380 0.2397 0.3484 0.2237 0.6607
replaced by AudioSet pretraining | 0.8028 0.2113 0.3346 0.1742 0.6677
− all pretraining (from scratch) | 0.3607 0.3666 0.3636 0.1840 0.5588
FCOS baseline | 0.5848 0.0892 0.1548 0.0909 0.6513
"""
}
_ADAPTERS = {
    "Rainforest, other site": """
conv adapter | 0.5928 0.3517 0.4415 0.3004 0.6644
anisotropic adapter | 0.6432 0.3535 0.4563 0.2866 0.6466
upsampling adapter (main) | 0.7562 0.3169 0.4466 0.2573 0.6824
"""
}
_CURRICULUM = {
    "Rainforest, other site": """
base (no ST) | 0.7562 0.3169 0.4466 0.2573 0.6824
Stage 1 only | 0.9714 0.1201 0.2138 0.1731 0.7439
Stage 2 only | 0.9971 0.1046 0.1893 0.1789 0.7644
one-stage union | 0.1572 0.7341 0.2590 0.3894 0.5525
Stage 1 + Stage 2 (full) | 0.5044 0.5909 0.5442 0.3864 0.6067
"""
}
_ROUNDS = {
    "BIRDeep, in domain": """
round 0 (no ST) | 0.7824 0.7010 0.7395 0.6011 0.6822
round 1 | 0.7054 0.8248 0.7604 0.6870 0.7080
round 2 | 0.6709 0.9061 0.7709 0.7783 0.7339
""",
    "BIRDeep, other days": """
round 0 (no ST) | 0.7618 0.4808 0.5895 0.3838 0.6083
round 1 | 0.7253 0.5780 0.6434 0.3840 0.6020
round 2 | 0.6755 0.6247 0.6491 0.4280 0.5903
""",
    "BIRDeep, other sites": """
round 0 (no ST) | 0.6476 0.5059 0.5680 0.3803 0.6001
round 1 | 0.6893 0.5914 0.6367 0.3953 0.5963
round 2 | 0.6522 0.6438 0.6434 0.4414 0.5943
""",
}
_RETRIEVAL = {
    "Rainforest, 131 sonotypes": """
oracle boxes (ground truth) | 14,986 131 0.723 0.902 5.76
detected boxes (matched predictions) | 8,414 104 0.961 0.982 3.22
"""
}
_TABLES = {
    "in-domain": _TEST,
    "ood": _OOD,
    "overview": {name: block for name, block in (_TEST | _OOD).items() if name.startswith("Rainforest")},
    "pipeline": _PIPELINE,
    "adapters": _ADAPTERS,
    "curriculum": _CURRICULUM,
    "rounds": _ROUNDS,
    "retrieval": _RETRIEVAL,
}
