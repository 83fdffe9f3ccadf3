"""All in one resumable command: scan → statistics → pretrain → train → self-train → calibrate → evaluate → report.

``pipeline.py`` is the order of things; ``learn.py`` and ``judge.py`` are the stages, ``fit_run.py`` is what they share;
``inputs.py`` says what the data are; ``detector_scores.py`` measures.
"""
