"""The code behind the figures in the paper's tables, the README and the docs. Only in a clone of the repository.

``mast experiment`` (``command.py``) trains the paper's systems and makes its tables and figures. The others run alone,
as in ``python -m mast_studies.zero_shot``:

- ``zero_shot``: the embedded model on recordings that nothing was trained on, compared with other tools
- ``few_boxes``: how few boxes a user needs on top of it
- ``nested_boxes``: boxes inside boxes
- ``checked_agreement``: boxes drawn by eye against an expert's
- ``retrieval``: how well box embeddings name sounds
- ``label_planning``: F1 for each way of choosing clips to annotate
- ``stop_rule``: what stopping self-training early would have kept
- ``side_by_side``: every system of the paper's tables at once on one GPU
"""
