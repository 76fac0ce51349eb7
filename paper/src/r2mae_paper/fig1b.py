"""Fig. 1B: the spiked model, Corollary 1 and the general formula against simulation."""

from collections.abc import Mapping

from r2mae_paper.artefact import Part, TableRow, Tables, Tally, joined
from r2mae_paper.drawing import Figures
from r2mae_paper.spiked import SpikedSize, add_corollary, draw_angles, measure

TITLE = "Fig. 1B: spiked model (δ = 10), Corollary 1 against simulation"
DATA = "simulated"
COST = {"small": "seconds", "full": "half a minute on a core"}
PAPER = "Simulation follows Corollary 1; the better β is aligned with v, the deeper the descent and the later its end."
SIZE = SpikedSize

_DELTA = 10.0
_COSINES = (0.0, 0.5, 1.0)  # the paper's text does not give its values; these cover the range that it describes


def parts(size: SpikedSize) -> list[Part]:
    """Return one part, all angles of one strength."""

    def compute(jobs: int, tally: Tally) -> list[TableRow]:
        rows = measure(size, "uniform", (_DELTA,), _COSINES, jobs, tally)
        add_corollary(size, rows)
        return rows

    return [Part("angles", size.repetitions + size.fresh, compute)]


def table(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the rows of all angles."""
    return {"fig1b": joined(results)}


def draw(tables: Tables, size: SpikedSize) -> Figures:
    """Draw a panel for each angle."""
    return {"fig1b": draw_angles(size, tables["fig1b"])}
