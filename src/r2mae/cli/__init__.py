"""The command `r2mae`. torch is imported only when a command needs it."""
