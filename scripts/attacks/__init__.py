"""The parts of scripts/attack.py, each a separate script."""
