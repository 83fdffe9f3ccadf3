"""The web page where experts look, listen, correct and confirm; every decision is an annotation like any other.

``workspace`` says what is open, ``intake`` reads it into the ``store`` (SQLite), ``decisions`` changes it, ``listing``
and ``queue`` read it, ``tiles`` and ``sound`` make pictures and sound on demand, ``export_review`` writes annotations.
Nothing here imports torch: the page opens in a second.
"""
