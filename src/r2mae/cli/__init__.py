"""The command `r2mae`: thin, and without torch until a command needs it."""
