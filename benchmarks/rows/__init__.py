"""The rows of the table. Each module has `row(repeats)`, which measures every side and gives Markdown."""
