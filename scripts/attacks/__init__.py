"""The parts of scripts/attack.py, each a script of its own."""
