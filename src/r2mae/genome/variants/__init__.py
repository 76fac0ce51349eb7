"""Variants: reading and writing files of them, scoring them, and measuring how well scores discriminate."""
