"""Public datasets as people have them on disk, turned into dataset folders: one file per layout.

``birdeep`` and ``rainforest`` are folders of recordings with tables, ``birdset`` is sound inside Parquet files
or streamed from the hub. Each is read once; afterwards ``load_dataset`` and every command take the folder.
"""
