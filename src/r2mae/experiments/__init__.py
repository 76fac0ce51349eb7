"""Comparisons, and what is made of them; the only floor that knows the wings by name."""
