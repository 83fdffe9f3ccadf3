"""The paper's tables and figures, from a dataset to files: systems, studies, what each found, what it amounts to."""
