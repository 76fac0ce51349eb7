"""Continue the pretraining of ESM-2 on the proteins of a FASTA file with random mask ratios, then score mutations.

    python examples/proteins.py --init facebook/esm2_t6_8M_UR50D --proteins mine.fasta --out runs/proteins

A mutation's score is the masked marginal: log p(mutant) − log p(wild type) with its place hidden. The embedding of a
protein is the mean of its last hidden states. Needs `pip install '.[text]'`.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from r2mae.errors import UserError
from r2mae.text import TextConfig, read_documents
from r2mae.text.domain import DOMAIN
from r2mae.text.evaluate import embed_documents
from r2mae.training import pretrain
from r2mae.training.saving import load_model


def score_mutations(folder: Path, protein: str, place: int) -> dict[str, float]:
    """Return the score of every mutation of one place, which counts from 1, such as {"A12G": -0.7}."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    inputs = tokenizer(protein, return_tensors="pt")
    inputs["input_ids"][0, place] = tokenizer.mask_token_id  # the token at 0 begins the sequence
    with torch.no_grad():
        logs = model(**inputs).logits[0, place].log_softmax(-1)
    wild = protein[place - 1]
    numbers = {one: tokenizer.convert_tokens_to_ids(one) for one in "ACDEFGHIKLMNPQRSTVWY"}
    return {f"{wild}{place}{one}": float(logs[number] - logs[numbers[wild]]) for one, number in numbers.items()}


def main() -> None:
    """Train, score mutations, and embed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--init", default="facebook/esm2_t6_8M_UR50D", help="folder, or name of the Hub")
    parser.add_argument("--proteins", required=True, help="a FASTA file (.fasta, .fa, .faa, perhaps with .gz)")
    parser.add_argument("--out", type=Path, default=Path("runs/proteins"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="sequences in a step")
    parser.add_argument("--length", type=int, default=256, help="residues in a sequence, over ends of proteins")
    parser.add_argument("--place", type=int, default=5, help="place of the first protein that is mutated")
    given = parser.parse_args()

    config = TextConfig.make(
        data=given.proteins,
        init=given.init,
        scheme="r2mae",  # a ratio for every step, drawn from U(low, high)
        low=0.15,
        high=0.4,
        steps=given.steps,
        batch_size=given.batch,
        sequence_length=given.length,
        validation=0.1,
    )
    pretrain(config, DOMAIN, given.out)

    first = next(iter(read_documents(given.proteins)))
    scores = score_mutations(given.out, first, given.place)
    for name in sorted(scores, key=lambda one: scores[one], reverse=True)[:5]:
        print(f"{name} {scores[name]:+.3f}")
    embedding = embed_documents(*load_model(given.out, DOMAIN), given.proteins)["embedding"]
    print(f"{len(embedding)} proteins as vectors of {embedding.shape[1]} numbers")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:  # such as a checkpoint of the Hub without a network
        raise SystemExit(f"{error}") from None
