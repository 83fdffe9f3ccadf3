"""Measures what the project claims about speed and memory. ``python -m benchmarks`` runs everything."""
