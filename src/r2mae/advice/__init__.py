"""The theory on real data: advice on the mask ratio, and how far its formula holds."""
