"""``r2mae embed RUN DATA``: embed data with a pretrained model."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.declared import Offer, run_parser, taken
from r2mae.cli.parsing import loading
from r2mae.cores import DEVICES
from r2mae.domains.lookup import check_output, open_run
from r2mae.errors import UserError
from r2mae.fields import argument, option

if TYPE_CHECKING:
    from r2mae.domains.base import Domain


@dataclass(frozen=True)
class Options:
    """Embed data, without masks, with a pretrained model of any domain.

    The output contains `embedding`, a row for each sample, and in addition:

    Parameters
    ----------
    run : str
        A run folder.
    data : str
        A named set or a path.
    output : str, optional
        File to write, of cells .h5ad or .npz, of others .npz; by default in RUN.
    device : str
        Device: auto, cpu, cuda, cuda:N or mps.
    """

    run: str = argument()
    data: str = argument()
    output: str | None = option(None, short="-o", metavar="OUT")
    device: str = option("auto", words=DEVICES)


def _offer(domain: "Domain") -> Offer:
    declared = domain.command_line.embedding
    return Offer([(domain.name, declared.help)], declared.examples, [(kind, domain.name) for kind in _kinds(domain)])


def _kinds(domain: "Domain") -> tuple[type, ...]:
    declared = domain.command_line
    return declared.reading, declared.embedding.options


def run(path: Path, domain: "Domain", options: Options, given: dict[str, Any]) -> int:
    """Run the command."""
    _, written = open_run(path)
    default = next(iter(domain.exporters))
    output = Path(options.output or path / f"embedding-{Path(options.data).stem}{default}")
    if output.suffix not in domain.exporters:
        raise UserError(
            f"embeddings are written as {' or '.join(domain.exporters)}, not "
            f"{output.suffix or 'without a suffix'!r}: -o {output.stem}{default}"
        )
    domain.check_source(written.replace(data=options.data))
    if options.output is not None:
        check_output(domain, output, options.data)
    with loading():
        from r2mae.training.saving import load_model

    reading, own = (taken(given, kind) for kind in _kinds(domain))
    config, task, model = load_model(path, domain, device=options.device, unmasked=True)
    arrays = domain.embed(config, task, model, options.data, **reading, **own)
    domain.exporters[output.suffix](output, arrays, options.data)
    rows, width = arrays["embedding"].shape
    print(f"{rows} embeddings of {width} numbers are in {output}")
    if config.has_batch_norm:
        used = "re-estimated on unmasked inputs" if config.re_estimates_statistics else "those of training"
        print(f"batch statistics, as the run was last measured: {used}")
    return 0


parser = partial(run_parser, "embed", Options, _offer, run)
