"""Public datasets as people have them on disk, turned into dataset folders: one file a layout.

``birdeep`` and ``rainforest`` are folders of recordings with tables, ``birdset`` is sound inside Parquet files
or streamed from the hub. Each is read once; afterwards ``load_dataset`` and every command take the folder.
"""

from mast.data.layouts.birdeep import read_birdeep
from mast.data.layouts.birdset import hub_rows, parquet_rows, write_birdset
from mast.data.layouts.folder import LaidOut, write_laid_out
from mast.data.layouts.rainforest import read_rainforest

__all__ = [
    "LaidOut",
    "hub_rows",
    "parquet_rows",
    "read_birdeep",
    "read_rainforest",
    "write_birdset",
    "write_laid_out",
]
