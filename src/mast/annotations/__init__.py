"""Annotations in and out: boxes, and what was listened to.

One file per format, each a pair ``read`` / ``write``; every format reads into an :class:`AnnotationSet`.

============  ==========================  =====  ======================  =====================================
format        on disk                     score  other event columns     duration, sample rate, site, clock
============  ==========================  =====  ======================  =====================================
csv           `.csv`, `.parquet`          yes    yes                     in a folder (`recordings.csv`)
raven         folder of tables, `.txt`    yes    yes                     `recordings.csv` in the folder
audacity      folder of `.txt`            no     no                      `recordings.csv` in the folder
coco          `.json`                     yes    yes                     yes; needs duration and rate
yolo          folder of `.txt`            yes    no                      `recordings.csv`; needs both
aoef          `.json`                     yes    yes                     yes; needs duration and rate
kaleidoscope  `.csv`                      yes    yes                     no
birdeep       `.csv`                      no     no (annotator)          duration, site, clock; no sample rate
============  ==========================  =====  ======================  =====================================

"Other event columns" are site, datetime, source, model and any others. All formats hold labels; `raven`,
`audacity` and `yolo` turn tabs and line breaks in them into spaces.

Each format has its own way to say *heard, nothing there*: `raven` a table with only its header, `audacity` and
`yolo` an empty file, `coco` an image with ``reviewed`` spans and no annotations, `aoef` a clip annotation
without sound events, `kaleidoscope` a `Noise` row without frequencies, `birdeep` a `No audio` row, `csv` a
row of `reviewed.csv` (``file,start_s,end_s``) next to the table. A file per recording says that the whole
recording was listened to. Where the spans differ from that (parts only, or detections that nobody checked),
the same `reviewed.csv` is in the folder, or next to the file as `NAME.reviewed.csv`, and decides.

How what turns up in real files is handled: boxes without length or height (point labels, lines) are kept;
what no recording can hold (:func:`mast.events.check_events`, and an end long after the recording's) is an error that
names file, line and field; boxes that reach below 0 Hz are cut there; frequencies above Nyquist are kept when reading a
table and cut to Nyquist (:meth:`AnnotationSet.clipped_to_nyquist`) when writing, when evaluating and in a dataset,
where the sample rate is known, and a recording with nothing but boxes above Nyquist is not reviewed; an open upper
limit is the Nyquist frequency, and an error where the sample rate is unknown. Numbers are written so that the same
float64 comes back.
"""

from mast.annotations.base import AnnotationSet, Format
from mast.annotations.formats import FORMATS, guess_format, read_annotations, write_annotations

__all__ = ["FORMATS", "AnnotationSet", "Format", "guess_format", "read_annotations", "write_annotations"]
