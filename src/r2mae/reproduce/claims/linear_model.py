"""What the paper says of the linear model: Theorem 1, Corollary 1, Figs. 1A to 1G, 3 and 4."""
from r2mae.reproduce.claims.claim import Claim, Found
from r2mae.reproduce.claims.judging import of_difference, of_fit, largest_fall
from r2mae.reproduce.claims.results import Results


def _isotropic(results: Results) -> "pd.DataFrame":
    return results.table("fig1a", "gamma", "n", "ratio", "risk", "error", "theorem1")


def _theorem1(results: Results) -> Found:
    rows = _isotropic(results)
    rows = rows[rows["ratio"] != rows["gamma"]]
    same = set(rows["n"]) == {2000, 4000}
    return of_fit(rows["risk"].to_numpy(), rows["theorem1"].to_numpy(), "Simulation, one design.", same=same)


CLAIMS = (
    Claim(
        "theorem1", "Sec. 3.2, Fig. 1A", "Theorem 1 gives the test risk of the isotropic model on both sides of p = γ.",
        "median deviation of the simulated risk from the theorem, %", "fig1a", _theorem1, decimals=2,
    ),
)
