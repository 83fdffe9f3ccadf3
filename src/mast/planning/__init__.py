"""Which clips to annotate next, tasks a person can open, and their way back."""
