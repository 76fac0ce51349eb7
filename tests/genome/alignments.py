"""Small alignments, written and read again by the tests' own means."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from r2mae.genome import AlignmentStore
from r2mae.genome.store import build, readers, sources

CODES = {letter: token for token, letter in enumerate("ACGT-N")}
OTHER_STRAND = str.maketrans("ACGTNacgtn-", "TGCANtgcan-")


@dataclass
class Block:
    """A MAF block as it is meant: rows on the reference's plus strand, by species; the first row is the reference's."""

    contig: str
    start: int
    rows: dict[str, str]
    minus: bool = False
    deleted: tuple[str, ...] = ()

    def text(self, lengths: dict[str, int], rng: random.Random) -> str:
        """The block as a MAF has it."""
        lines = ["a score=1.0"]
        for number, (species, letters) in enumerate(self.rows.items()):
            shown = letters.translate(OTHER_STRAND)[::-1] if self.minus else letters
            size = len(shown) - shown.count("-")
            if number == 0:
                length = lengths[self.contig]
                start, strand = (length - self.start - size, "-") if self.minus else (self.start, "+")
                name = f"{species}.{self.contig}"
            else:
                start, strand, length, name = rng.randrange(50), rng.choice("+-"), 500, f"{species}.NW_012345.2"
            lines.append(f"s {name:<20} {start:>5} {size:>4} {strand} {length:>6} {shown}")
            if rng.random() < 0.3:
                lines.append(f"i {name} N 0 C 0")
        lines += [f"e {species}.scaffold_1 10 0 + 500 C" for species in self.deleted]
        return "\n".join(lines) + "\n"


@dataclass
class Alignment:
    """What a MAF holds, and what a store of it has to hold."""

    lengths: dict[str, int]
    species: tuple[str, ...]
    blocks: list[Block] = field(default_factory=list)

    def maf(self, seed: int = 0) -> str:
        """The file's text."""
        rng = random.Random(seed)
        return "##maf version=1\n" + "\n".join(block.text(self.lengths, rng) for block in self.blocks)

    def letters(self) -> dict[str, list[list[str]]]:
        """Positions x species of each contig, by the rule that the first block counts; N is unknown."""
        found = {name: [["N"] * len(self.species) for _ in range(length)] for name, length in self.lengths.items()}
        covered: set[tuple[str, int]] = set()
        for block in self.blocks:
            reference = next(iter(block.rows.values()))
            place = block.start
            here = set()
            for column, letter in enumerate(reference):
                if letter == "-":
                    continue
                if (block.contig, place) not in covered:
                    for number, species in enumerate(self.species):
                        given = block.rows.get(species, "-" * len(reference) if species in block.deleted else None)
                        if given is not None:
                            found[block.contig][place][number] = given[column] if number == 0 else given[column].upper()
                here.add((block.contig, place))
                place += 1
            covered |= here
        return found

    @property
    def contigs(self) -> list[str]:
        """Contigs that have a block, in order of appearance."""
        return list(dict.fromkeys(block.contig for block in self.blocks))


def maf_of(contigs: dict[str, dict[str, str]]) -> str:
    """A MAF with a block for each contig, of rows by species; the first is the reference's, whole and without gaps."""
    blocks = []
    for contig, rows in contigs.items():
        sizes = [len(row) - row.count("-") for row in rows.values()]
        lines = [
            f"s {name}.{contig} 0 {size} + {sizes[0] if number == 0 else 500} {row}\n"
            for number, ((name, row), size) in enumerate(zip(rows.items(), sizes, strict=True))
        ]
        blocks.append("a\n" + "".join(lines))
    return "##maf version=1\n" + "\n".join(blocks)


def tokens_of(letters: Sequence[Sequence[str]]) -> np.ndarray:
    """Positions x species as tokens, with the soft-mask bit in the first column."""
    return np.array(
        [
            [
                CODES[letter.upper()] | (0x80 if number == 0 and letter.islower() else 0)
                for number, letter in enumerate(row)
            ]
            for row in letters
        ],
        np.uint8,
    )


def tokens_in(store: AlignmentStore) -> np.ndarray:
    """The tokens of all contigs, one after the other."""
    return np.concatenate([store.tokens(number) for number in range(len(store.contigs))])


def random_alignment(seed: int, *, blocks: int = 12, contigs: int = 2, overlap: bool = True) -> Alignment:
    """Blocks in random order and on random strands, some of them overlapping."""
    rng = random.Random(seed)
    species = ("ref", *(f"sp{number}" for number in range(rng.randint(1, 5))))
    lengths = {f"NC_00000{number}.1": rng.randint(30, 120) for number in range(contigs)}
    genome = {name: "".join(rng.choice("ACGTacgtN") for _ in range(length)) for name, length in lengths.items()}
    alignment = Alignment(lengths, species)
    taken: set[tuple[str, int]] = set()
    for _ in range(blocks):
        contig = rng.choice(list(lengths))
        start = rng.randrange(lengths[contig])
        end = min(start + rng.randint(1, 25), lengths[contig])
        places = {(contig, place) for place in range(start, end)}
        if not overlap and taken & places:
            continue
        taken |= places
        reference = ""
        for letter in genome[contig][start:end]:
            reference += "-" * (rng.randint(1, 3) if rng.random() < 0.1 else 0) + letter
        others = rng.sample(species[1:], rng.randint(0, len(species) - 1))
        rows = {"ref": reference}
        for name in others:
            rows[name] = "".join(rng.choice("ACGTacgt-NRU") if rng.random() < 0.9 else "-" for _ in reference)
        rows = {name: row.replace("R", "N").replace("U", "T") for name, row in rows.items()}
        absent = [name for name in species[1:] if name not in rows]
        deleted = tuple(name for name in absent if rng.random() < 0.3)
        alignment.blocks.append(Block(contig, start, rows, rng.random() < 0.4, deleted))
    named = {name for block in alignment.blocks for name in block.rows}
    if named != set(species):  # every species has a row somewhere, else a MAF cannot know of it
        contig = next(iter(lengths))
        first = genome[contig][0]
        alignment.blocks.append(Block(contig, 0, {name: first if name == "ref" else "A" for name in species}))
    return alignment


def shrink(change: Callable[[object, str, int], None]) -> None:
    """Make chunks and pieces small."""
    change(sources, "PIECE", 400)
    for module in (build, readers):
        change(module, "CHUNK", 16)
