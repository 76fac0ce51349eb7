"""What a wing offers, and how one is found by its name."""
