"""The contract of a wing, and how to find a wing by its name."""
