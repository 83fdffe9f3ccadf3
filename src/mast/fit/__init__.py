"""All in one resumable command: scan → statistics → pretrain → train → self-train → calibrate → evaluate → report.

``sources.py`` says what the data are; ``measure.py`` measures;
``pipeline.py`` is the order of things.
"""
