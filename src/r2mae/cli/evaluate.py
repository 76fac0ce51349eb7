"""``r2mae evaluate RUN``: measure a pretrained model."""

from collections.abc import Sequence
from pathlib import Path

from r2mae.cli.parsing import Parser


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        "r2mae evaluate",
        "Measure a pretrained model on its test data: linear probe, reconstruction on frozen masks, effective rank.",
        "r2mae evaluate runs/a --probe logistic",
    )
    parser.add_argument("run", metavar="RUN", type=str, help="A run folder.")
    parser.add_argument(
        "--probe",
        choices=["head", "logistic"],
        help="For images: the paper's probe (head, the default), or logistic regression with cross-validated strength.",
    )
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:N.")
    parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")
    values = parser.read(words)
    path = Path(values["run"])

    from r2mae.cli.show import print_json, scores_table
    from r2mae.experiments.cell import evaluate
    from r2mae.experiments.wings import wing_of_run
    from r2mae.training.folder import RunFolder

    written = RunFolder(path).read_config()
    wing = wing_of_run(written, path)
    options = {} if values["probe"] is None else {"probe": values["probe"]}
    scores, seconds = evaluate(path, **options, device=values["device"])
    if values["json"]:
        print_json({"run": str(path), "scores": scores, "seconds": seconds})
        return 0
    scores_table(scores, wing.metrics_of(wing.config.from_dict(written, source=str(path))))
    print(f"measured in {seconds:.1f} s")
    return 0
