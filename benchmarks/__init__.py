"""What the project claims about speed and memory, measured. ``python -m benchmarks`` runs everything."""
