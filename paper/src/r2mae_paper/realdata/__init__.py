"""Does the formula hold on real data? A study: ``python -m r2mae_paper.realdata --out DIR``."""
