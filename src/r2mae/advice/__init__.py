"""The theory applied to real data: advice on the mask ratio, and a study of how far its formula holds."""
