"""Continue the pretraining of a masked language model on your own text with random mask ratios, then fill in blanks.

    python examples/text.py --init distilbert/distilbert-base-uncased --corpus notes.txt --out runs/notes

The checkpoint may be any that AutoModelForMaskedLM opens, the corpus a .txt file with blank lines between documents, a
.jsonl or .parquet file, or a folder. The run folder that is written opens in transformers. From fresh weights and with
few steps a fixed ratio of 0.4 learned faster: `r2mae compare text` compares both. Needs `pip install '.[text]'`.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from r2mae.errors import UserError
from r2mae.text import TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.training import pretrain


def fill(folder: Path, text: str, most: int = 3) -> list[str]:
    """Return the likeliest words for the first blank of a text, which is written as [blank]."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    inputs = tokenizer(text.replace("[blank]", tokenizer.mask_token), return_tensors="pt")
    place = int((inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0])
    with torch.no_grad():
        logits = model(**inputs).logits[0, place]
    return [str(tokenizer.decode([number])).strip() for number in logits.topk(most).indices.tolist()]


def main() -> None:
    """Train, measure and fill in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--init", default="distilbert/distilbert-base-uncased", help="folder, or name of the Hub")
    parser.add_argument("--corpus", default="wikitext2", help="your text")
    parser.add_argument("--out", type=Path, default=Path("runs/text"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32, help="sequences in a step")
    parser.add_argument("--length", type=int, default=128, help="tokens in a sequence")
    parser.add_argument("--text", default="The capital of France is [blank].")
    given = parser.parse_args()

    config = TextConfig.make(
        data=given.corpus,
        init=given.init,
        scheme="r2mae",  # a ratio for every step, drawn from U(low, high)
        low=0.15,
        high=0.4,
        steps=given.steps,
        batch_size=given.batch,
        sequence_length=given.length,
        validation=0.1,
    )
    _, results = pretrain(config, DOMAIN, given.out)  # run again, it resumes, or reads what is finished
    for ratio in ("0.15", "0.4", "0.8"):
        loss, accuracy = (results["scores"][f"{name}_{ratio}"] for name in ("loss", "accuracy"))
        print(f"{ratio} of the tokens hidden: {loss:.3f} nats a token, {accuracy:.1%} right")
    print(f"{given.text} {' | '.join(fill(given.out, given.text))}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:  # such as a checkpoint of the Hub without a network
        raise SystemExit(f"{error}") from None
