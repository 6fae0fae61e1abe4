"""`recollect recall-eval`: what it measures, and what it calls a regression."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect import Refused
from recollect.cli import build
from recollect.recall import evaluation

CASES = """
k: 2
score_min: 0.1
cases:
  - name: pets
    memories: {cat: "The user has a cat called Miso.", car: "The user drives a Volvo."}
    questions:
      - {ask: "what is my cat called?", must: [cat], must_not: [car]}
"""


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(["recall-eval"]), ["recall-eval", *arguments])
    return result.exit_code, result.output


def test_the_sample_holds(caplog: pytest.LogCaptureFixture) -> None:
    code, output = run()
    assert code == 0, output
    assert not caplog.records, "what is thrown away cannot be lost"
    assert "recall@3 1.000" in output
    assert "(lexical)" in output


def test_a_worse_embedder_is_a_regression(tmp_path: Path) -> None:
    baseline = str(tmp_path / "baseline.json")
    assert run("--baseline", baseline, "--save")[0] == 0
    assert run("--baseline", baseline)[0] == 0
    code, output = run("--baseline", baseline, "--embedder", "hashing:16")
    assert code == 1
    assert "regression  recall@3 fell from 1.000" in output or "leaked" in output
    code, output = run("--baseline", baseline, "--score-min", "0.9")
    assert code == 1
    assert "no longer finds" in output


def test_what_must_not_come_back_fails_without_a_baseline(tmp_path: Path) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text(CASES.replace("must_not: [car]", "must_not: [cat]"))
    code, output = run(str(cases))
    assert code == 1
    assert "must not find cat" in output


def test_json(tmp_path: Path) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text(CASES)
    code, output = run(str(cases), "--json")
    assert code == 0
    measured = json.loads(output[output.index("{") :])
    assert (measured["recall"], measured["precision"], measured["regressions"]) == (1.0, 1.0, [])
    assert measured["answers"][0]["case"] == "pets"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("cases: 3", "not a file of cases"),
        ("cases: [{name: a, questions: []}]", "neither memories nor messages"),
        ("cases: [{name: a, memories: {x: y}, questions: []}]", "asks nothing"),
        ("cases: [{name: a, memories: {x: y}, questoins: []}]", "not a file of cases"),
        ("k: [", "not a file of cases"),
    ],
)
def test_files_that_are_not_cases(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(content)
    with pytest.raises(Refused, match=words):
        evaluation.load_cases(path)


def test_a_baseline_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no baseline yet"):
        evaluation.load(tmp_path / "none.json")


@pytest.mark.parametrize("name", ["", "openai:model", "hash", "local:"])
def test_unknown_embedders_are_refused(name: str) -> None:
    with pytest.raises(Refused, match="embedder"):
        evaluation.make_embedder(name)
