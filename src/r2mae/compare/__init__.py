"""Schemes × seeds: variants, finished runs, and the outcome."""
