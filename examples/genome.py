"""Pretrain on a genome and its aligned relatives with random mask ratios, then score the variants of a VCF.

    python examples/genome.py --out runs/genome
    python examples/genome.py --alignment chr22.maf.gz --variants mine.vcf.gz --steps 30000 --out runs/chr22

Without files it simulates both: half of the genome is conserved among its relatives, and changes there should have
lower scores. A score is log p(alternative) − log p(reference) with the position hidden. No scheme was shown to be
better than a fixed ratio: `r2mae compare genome` compares them. Needs `pip install '.[genome]'` for files that end in
.gz.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from r2mae.genome import DOMAIN, GenomeConfig, build_store
from r2mae.genome.score import score_variants
from r2mae.training import pretrain

HEADER = '##fileformat=VCFv4.2\n##INFO=<ID=CONSERVED,Number=1,Type=Integer,Description="Simulated">\n'
COLUMNS = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"


def simulate(folder: Path, positions: int = 6000, relatives: int = 12) -> tuple[Path, Path]:
    """Write an alignment and variants of it, and return both files."""
    rng = np.random.default_rng(0)
    letters = np.array(list("ACGT"))
    conserved = np.repeat(rng.random(positions // 20) < 0.5, 20)  # in blocks of 20 positions
    genome = rng.integers(0, 4, positions)
    rows = [genome]
    for _ in range(relatives):
        changed = rng.random(positions) < np.where(conserved, 0.05, 0.7)
        rows.append(np.where(changed, rng.integers(0, 4, positions), genome))
    folder.mkdir(parents=True, exist_ok=True)
    alignment, variants = folder / "aligned.fa", folder / "variants.vcf"
    alignment.write_text("".join(f">species{n}\n{''.join(letters[row])}\n" for n, row in enumerate(rows)))
    places = np.sort(rng.choice(positions, 400, replace=False))
    alts = (genome[places] + rng.integers(1, 4, len(places))) % 4
    lines = [
        f"species0\t{place + 1}\t.\t{letters[genome[place]]}\t{letters[alt]}\t.\t.\tCONSERVED={conserved[place]:d}\n"
        for place, alt in zip(places, alts, strict=True)
    ]
    variants.write_text(HEADER + COLUMNS + "".join(lines))
    return alignment, variants


def read_info(vcf: Path) -> list[dict[str, str]]:
    """Return the entries of INFO of each row of a VCF."""
    rows = [line.split("\t") for line in vcf.read_text().splitlines() if not line.startswith("#")]
    return [dict(entry.split("=") for entry in row[7].split(";")) for row in rows]


def main() -> None:
    """Build a store, train, and score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alignment", type=Path, help="MAF, or FASTA whose rows are aligned to the first")
    parser.add_argument("--variants", type=Path, help="a VCF of the alignment's first species")
    parser.add_argument("--out", type=Path, default=Path("runs/genome"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=32, help="windows in a step")
    parser.add_argument("--length", type=int, default=64, help="positions of a window")
    given = parser.parse_args()
    if (given.alignment is None) != (given.variants is None):
        parser.error("give both --alignment and --variants, or none")
    alignment, variants = given.alignment, given.variants
    if alignment is None:
        alignment, variants = simulate(given.out / "simulated")

    store = build_store(alignment, given.out / "store")  # run again, it opens what is there
    print(store)
    config = GenomeConfig.make(
        data=str(store.folder),
        scheme="r2mae",  # a ratio for every step, drawn from U(low, high)
        low=0.05,
        high=0.3,
        steps=given.steps,
        batch_size=given.batch,
        window=given.length,
        width=64,
        layers=2,
        heads=4,
        lr=3e-3,
    )
    _, results = pretrain(config, DOMAIN, given.out / "run")
    print(f"{results['scores']['accuracy']:.1%} of the hidden bases of held-out windows are right")

    suffix = "".join(variants.suffixes[-2:]) if variants.suffix == ".gz" else variants.suffix
    scored = given.out / f"scored{suffix}"
    counts = score_variants(given.out / "run", str(variants), scored)
    print(f"{counts['']} of {sum(counts.values())} variants have a score, see {scored}")
    if given.variants is None:
        info = read_info(scored)
        area = roc_auc_score([int(row["CONSERVED"]) for row in info], [-float(row["score"]) for row in info])
        print(f"changes at conserved positions have lower scores: AUROC {area:.2f}")


if __name__ == "__main__":
    main()
