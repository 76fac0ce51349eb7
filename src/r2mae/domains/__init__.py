"""The contract of a domain, and how to find a domain by its name."""
