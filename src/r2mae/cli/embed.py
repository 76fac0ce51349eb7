"""``r2mae embed RUN DATA``: embed data with a pretrained model."""

from collections.abc import Sequence
from pathlib import Path

from r2mae.cli.parsing import Parser
from r2mae.errors import UserError


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        "r2mae embed",
        "Embed data, unmasked, with a pretrained model. The output holds `embedding`; `split` (0 training, 1 test: the "
        "run's own division for the run's data, else an official one); `labels`, and the names of their `classes`.",
        "r2mae embed runs/a digits -o digits.npz",
    )
    parser.add_argument("run", metavar="RUN", type=str, help="A run folder.")
    parser.add_argument("data", metavar="DATA", type=str, help="A named set or a path.")
    parser.add_argument(
        "-o", "--output", type=str, help="File to write (.npz; of cells also .h5ad); by default in RUN."
    )
    parser.add_argument("--resize", type=int, help="Bring images to this many pixels a side; by default as in the run.")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:N.")
    values = parser.read(words)
    path = Path(values["run"])

    from r2mae.experiments.wings import wing_of_run
    from r2mae.training.folder import RunFolder
    from r2mae.training.saving import load_model

    wing = wing_of_run(RunFolder(path).read_config(), path)
    usual = wing.embedding_files[0]
    output = Path(values["output"] or path / f"embedding-{Path(values['data']).stem}{usual}")
    if output.suffix not in wing.embedding_files:
        raise UserError(
            f"embeddings are written as {' or '.join(wing.embedding_files)}, not "
            f"{output.suffix or 'without a suffix'!r}: -o {output.stem}{usual}"
        )
    config, task, model = load_model(path, wing, device=values["device"])
    if values["resize"] is not None:
        config = type(config).from_dict({**config.to_dict(), "resize": values["resize"]})
    arrays = wing.embed(config, task, model, values["data"])
    wing.write_embedding(output, arrays, values["data"])
    rows, width = arrays["embedding"].shape
    print(f"{rows} embeddings of {width} numbers are in {output}")
    return 0
