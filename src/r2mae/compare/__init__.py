"""Schemes against each other: rows and seeds, what is finished of them, and the outcome."""
