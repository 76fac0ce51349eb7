"""``r2mae evaluate RUN``: measure a pretrained model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.early import check_source, open_run
from r2mae.cli.lists import words_of
from r2mae.cli.parsing import Parser, add_reading
from r2mae.errors import UserError, unknown

if TYPE_CHECKING:
    from r2mae.wings.contract import Wing

_OPTIONS = ("probe", "folder", "limit", "recalibrate", "representation")
_READING = ("resize", "resize_mode", "transform_batch", "layer")

_DESCRIPTION = """Measure a pretrained model of any wing on test data that it has not learned from: those of the run, or
with --data others. RUN/results.json stays as it is.

  images  linear probe, reconstruction on frozen masks, effective rank
  cells   probes of the run's labels and numbers across donors, reconstruction, effective rank
  text    loss and accuracy of hidden tokens in held-out text at six mask ratios
  glue    for text: fine-tuning on the tasks of --task, 5 epochs each, mean of three seeds (and its standard deviation),
          rate 2e-5, batches of 32, as in the paper; warm-up over 6 % and weight decay 0.01 are ours;
          finished fine-tunings are kept in RUN/evaluation.json and not repeated"""


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        "r2mae evaluate",
        _DESCRIPTION,
        "r2mae evaluate runs/digits --probe logistic",
        "r2mae evaluate runs/digits --data mnist --resize 8",
        "r2mae evaluate runs/cells --baselines expression scvi",
        "r2mae evaluate runs/text glue --task sst2 qnli --limit 2000",
    )
    parser.add_argument("run", metavar="RUN", type=str, help="A run folder.")
    parser.add_argument(
        "what",
        metavar="WHAT",
        nargs="?",
        type=str,
        help="The run's wing (its usual evaluation, the default); for text also glue: fine-tuning.",
    )
    parser.add_argument("--task", type=tuple[str, ...], default=(), help="For text: tasks of glue, sst2 qnli mnli qqp.")
    parser.add_argument("--folder", type=str, help="For text: where GLUE lies; by default glue/ in the data folder.")
    parser.add_argument("--limit", type=int, help="For text: most training examples of a task of glue; by default all.")
    parser.add_argument(
        "--probe",
        choices=["head", "logistic"],
        help="For images: the paper's probe (head, the default), or logistic regression with cross-validated strength.",
    )
    parser.add_argument(
        "--recalibrate",
        choices=["yes", "no", "both"],
        help="For models with batch normalisation: statistics re-estimated on the inputs of each evaluation, those of "
        "training (as in the paper), or scores with either; by default as in the run.",
    )
    parser.add_argument(
        "--representation",
        choices=["latent", "hidden"],
        help="For cells: the latent layer, or the last hidden layer before it; by default as in the run.",
    )
    parser.add_argument(
        "--baselines",
        nargs="+",
        type=str,
        default=[],
        help="Measure these as well: of images pixels, pca, mean; of cells expression, pca, scvi, and keys of the "
        "file's obsm.",
    )
    parser.add_argument(
        "--data",
        type=str,
        help="Measure on other data: a named set or a path. What is fitted is fitted on their own training part; text "
        "is measured on the whole corpus, cells are mapped onto the run's genes.",
    )
    add_reading(parser, "With --data, ")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:N.")
    parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")
    values = parser.read(words)
    path = Path(values["run"])

    wing, config = open_run(path)
    known = [wing.name, *(["glue"] if "glue" in wing.evaluation_options else [])]
    if values["what"] not in (None, *known):
        raise unknown("evaluation", values["what"], known)
    options = {name: values[name] for name in _OPTIONS if values[name] is not None}
    if values["what"] == "glue":
        if not values["task"]:
            raise UserError("evaluate RUN glue needs the tasks: --task sst2 qnli")
        options |= {"glue": values["task"], "curve": False}
    elif values["task"]:
        raise UserError(f"--task is of glue: r2mae evaluate {path} glue --task {' '.join(values['task'])}")
    for name in options:
        if name not in wing.evaluation_options:
            raise UserError(f"{path} is a run of the wing {wing.name}, which has no --{name}: leave it out")
    reading = _reading(wing, path, values)
    check_source(wing, config, values["data"] or config.data)

    from r2mae.cli.show import counting_bar, print_json, scores_table
    from r2mae.sweep.measure import evaluate

    with counting_bar("measuring", counted=False, transient=True) as progress:
        found = evaluate(
            path,
            source=values["data"],
            reading=reading,
            baselines=words_of(values["baselines"]),
            device=values["device"],
            progress=progress,
            **options,
        )
    given = {name: options[name] for name in found.config.measured_with if name in options}
    config = replace(found.config, **given)
    measured = config.measured_as()
    if values["json"]:
        told = {"measured": measured, "scores": found.scores, "baselines": found.baselines, "seconds": found.seconds}
        print_json({"run": str(path), "data": found.config.data, **told})
        return 0
    scores_table({path.name: found.scores, **found.baselines}, wing.metrics_of(config))
    if said := config.measured_in_words():
        print(said)
    print(f"measured on {found.config.data} in {found.seconds:.1f} s")
    return 0


def _reading(wing: "Wing", path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return how other data shall be read; refuse what would be without effect."""
    reading = {name: values[name] for name in _READING if values[name] is not None}
    for name in reading:
        dashed = name.replace("_", "-")
        if name not in wing.embedding_options:
            raise UserError(f"{path} is a run of the wing {wing.name}, which has no --{dashed}: leave it out")
        if values["data"] is None:
            raise UserError(f"--{dashed} is for other data: name them, --data OTHER, or leave it out")
    if values["what"] == "glue" and values["data"] is not None:
        raise UserError("glue has its own data: leave --data out")
    return reading
