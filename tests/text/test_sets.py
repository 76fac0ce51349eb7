"""The corpora known by name are the ones whose checksums are known."""

from pathlib import Path

from r2mae.catalogue import fetch
from r2mae.text.config import TextConfig
from r2mae.text.documents import corpus_of
from r2mae.text.sets import HEADINGS, HUB, SET_DEFAULTS, SETS


def test_every_set_is_complete() -> None:
    for name, entry in SETS.items():
        assert (entry.name, entry.domain) == (name, "text")
        assert entry.title
        assert entry.licence
        assert bool(entry.files) != bool(entry.packaged)
        assert (name in HUB) == (not entry.files)
    assert set(HEADINGS) | set(HUB) | set(SET_DEFAULTS) <= set(SETS)


def test_the_files_here_are_the_true_ones(shared_data: Path) -> None:
    listed = dict(line.split("  ./")[::-1] for line in (shared_data / "SHA256SUMS").read_text().splitlines())
    for entry in SETS.values():
        fetch(entry, progress=False)
        assert all(listed[file.path] == file.sha256 for file in entry.files)


def test_defaults_are_a_configuration() -> None:
    for name, values in SET_DEFAULTS.items():
        assert TextConfig.make(data=name, **values).data.source == name


def test_fineweb_is_the_sample_of_the_paper() -> None:
    corpus = corpus_of("fineweb")
    assert corpus.name == "hf:HuggingFaceFW/fineweb:sample-10BT"
