"""Command lines and files that no run means: one line, exit code 2, nothing written."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from PIL import Image

from r2mae.cli.main import main
from r2mae.genome import build_store

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)


def refused(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    before = sorted(Path().rglob("*"))
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("r2mae: ")
    assert len(err.splitlines()) == 1, err
    assert told in err
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    ("command", "text", "told"),
    [
        ("pretrain", LAUGHS, "anchors and aliases are not read"),
        ("pretrain", "domain: [a]\ndata: digits\n", "domain takes text"),
        ("pretrain", "domain: images\ndata: {a: 1}\n", "name the data"),
        ("pretrain", "data: digits\npreset: [a]\n", "preset takes text"),
        ("pretrain", "data: digits\nhidden: [1]\n", "hidden takes a whole number"),
        ("pretrain", "data: digits\nlr: " + "9" * 400 + "\n", "is no whole number that is read"),
        ("pretrain", "data: digits\nsteps: 0x" + "f" * 5000 + "\n", "is no whole number that is read"),
        ("pretrain", "data: digits\nsteps: 1" + "0" * 20 + "\n", "steps must be 1 to"),
        ("pretrain", "data: digits\nworkers: 1:30\n", "'1:30' is no whole number"),
        ("pretrain", 'domain: images\ndata: "a\\0b"\n', "NUL"),
        ("compare", "data: digits\nseeds: {a: 1}\n", "c.yaml: seeds takes a list (each a whole number), not"),
        ("compare", "data: digits\nseeds: [[1]]\n", "c.yaml: seeds takes a list (each a whole number), not"),
        ("compare", "data: digits\nseeds: 100000000\n", "takes 1 to 10,000 seeds, not 100000000"),
        ("compare", "data: digits\nschemes: {a: 1}\n", "c.yaml: schemes takes a list (each text), not"),
        ("compare", "data: digits\nratios: [[0.1]]\n", "c.yaml: ratios takes a list (each a number), not"),
    ],
)
def test_files(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    text: str,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(text)
    refused(capsys, [command, "--config", "c.yaml"], told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "a\0b"], "NUL"),
        (["--hidden", "1" + "0" * 30], "hidden takes numbers up to"),
        (["--hidden", "2000000000", "--device", "cpu"], "free: make it smaller"),
        (["--batch-size", "1000000000"], "is more than 1,000 times the"),
        (["--latent", "2147483648"], "latent takes numbers up to"),
        (["--steps", "1" + "0" * 20], "steps must be 1 to"),
        (["--threads", "100000"], "threads must be 1 to"),
    ],
)
def test_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    refused(capsys, ["pretrain", "digits", *words], told)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("pretrain digits --workers 1:30", "--workers takes a whole number, not '1:30'"),
        ("pretrain digits --workers=３", "--workers takes a whole number, not '３'"),  # noqa: RUF001
        ("pretrain digits --lr=1:30.5", "--lr takes a number, not '1:30.5'"),
        ("compare digits --jobs 1:30", "--jobs takes a whole number, not '1:30'"),
        ("compare digits --seeds ３", "--seeds takes a list (each a whole number), not '３'"),  # noqa: RUF001
        ("compare digits --ratios ٤.5", "--ratios takes a list (each a number), not '٤.5'"),
    ],
)
def test_numbers_as_people_do_not_mean_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: str
) -> None:
    """YAML takes 1:30 for ninety, and Python digits of any script."""
    monkeypatch.chdir(tmp_path)
    refused(capsys, line.split(), told)


@pytest.mark.slow
def test_names_that_are_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for label in (b"a\xff", b"b"):
        folder = Path(os.fsdecode(b"im\xff")) / os.fsdecode(label)
        folder.mkdir(parents=True)
        for place in range(12):
            pixels = np.random.default_rng(place).integers(0, 255, (6, 6), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / os.fsdecode(b"x\xe9%d.png" % place))
    data, out = os.fsdecode(b"im\xff"), os.fsdecode(b"run\xff")
    sizes = ["--steps", "3", "--hidden", "8", "--latent", "4", "--batch-size", "8", "--threads", "1", "--device", "cpu"]
    assert main(["pretrain", "images", data, *sizes, "--out", out, "--json"]) == 0
    assert main(["embed", out, data, "-o", "e.npz"]) == 0
    assert (Path(out) / "results.json").is_file()


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Make named pipes in an own folder, and give up after five minutes if one is waited for."""

    def give_up(*_: object) -> NoReturn:
        pytest.fail("waits for a pipe")

    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(300)
    yield os.mkfifo
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize(
    "line",
    [
        "pretrain cells x.h5ad",
        "pretrain images x.npy",
        "pretrain images x.npz",
        "pretrain images x.tar",
        "pretrain images x.png",
        "pretrain images digits --init x.safetensors --model vit-mae",
        "pretrain images digits --init x.pth --model vit-mae",
        "pretrain text x.txt",
        "pretrain text x.jsonl.gz",
        "pretrain text x.parquet",
        "pretrain text t.txt --tokenizer x.json --preset tiny",
        "pretrain genome store --exclude x.bed --preset tiny --window 4",
        "pretrain genome store --init x --preset tiny --window 4",
        "pretrain genome store --variants x.vcf --label y --preset tiny --window 4",
        "pretrain genome store --variants x.parquet --label y --preset tiny --window 4",
        "pretrain --config x.yaml",
        "data alignment build x.maf -o out",
        "data alignment build x.fa -o out",
        "data alignment build a.maf --reference x.fa -o out",
        "data alignment build a.maf --species x.txt -o out",
        "data alignment track store x.bw --name t",
        "data alignment track store a.bg --name t --rename x.txt",
    ],
)
def test_pipes_are_not_waited_for(line: str, pipe: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.maf").write_text("##maf version=1\na\ns r.chr1 0 8 + 8 ACGTACGT\ns x.c 0 8 + 8 ACGTACGT\n")
    Path("t.txt").write_text("some words\n" * 9)
    Path("a.bg").write_text("chr1 0 1 1\n")
    build_store("a.maf", "store")
    words = line.split()
    pipe(next(word for word in words if Path(word).name.startswith("x")))
    refused(capsys, [*words, "--out", "run"] if words[0] == "pretrain" else words, "regular file")
