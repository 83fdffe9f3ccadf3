"""All in one resumable command: scan → statistics → pretrain → train → self-train → calibrate → evaluate → report.

``pipeline.py`` has the order of the stages; ``learn.py`` and ``judge.py`` have the stages, ``fit_run.py`` what they
share; ``inputs.py`` reads and describes the data; ``detector_scores.py`` measures.
"""
