"""Merges are heard of, and nothing else that is written to standard error is lost."""

import os
import sys

import pytest

from r2mae.text.tokenizer import train_bpe
from r2mae.text.tokenizer.merge_progress import Hearing, heard

TEXTS = [f"document {number}: the cat sat on the mat" for number in range(40)]
LINE = b'{"stage":"Compute merges","current":%d,"total":9}\n'


def test_training_tells_of_its_merges(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int]] = []
    made = train_bpe(TEXTS, 300, merging=lambda done, total: told.append((done, total)))
    assert told
    assert told == sorted(told, key=lambda one: one[0])
    assert told[-1][0] == told[-1][1]
    assert made.fingerprint == train_bpe(TEXTS, 300).fingerprint
    print("afterwards", file=sys.stderr)
    assert capfd.readouterr() == ("", "afterwards\n")


def test_what_others_write_goes_through(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[int] = []
    with heard(lambda done, total: told.append(done)) as hearing:
        assert isinstance(hearing, Hearing)
        assert list(hearing.after(TEXTS)) == TEXTS
        os.write(2, b"one " + LINE % 3 + b'two {"stage"')
        os.write(2, b': 3}\n{"stage":"Compute mer')
        os.write(2, b'ges","current":4,"total":9}\n{"stage":"Count pairs","current":1,"total":9}\n')
        os.write(2, b'{"stage":"unfinished')
    assert told == [3, 4]
    assert capfd.readouterr().err == 'one two {"stage": 3}\n{"stage":"unfinished'


def test_standard_error_is_given_back_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), heard(lambda done, total: None) as hearing:
        assert hearing is not None
        list(hearing.after(TEXTS))
        raise ZeroDivisionError
    os.write(2, b"here\n")
    assert capfd.readouterr().err == "here\n"


def test_documents_that_fail_are_not_heard_of(capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> object:
        yield TEXTS[0]
        raise ValueError("a broken file")

    with pytest.raises(ValueError, match="a broken file"):
        train_bpe(broken(), 300, merging=lambda done, total: None)
    assert capfd.readouterr() == ("", "")


def test_nobody_is_told_where_nobody_asks() -> None:
    with heard(None) as hearing:
        assert hearing is None
