"""The durability model against the real kernel: the same run, a real power loss, the same bytes.

Root only, with mkfs and loop devices; skipped with the reason elsewhere. A few engines here; all of them in
`bench/kernel.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disk.comparison import CASES, Case, compare
from tests.disk.realdisk import FILE_SYSTEMS, FileSystem, RealDisk, why_not

QUICK = ("redis aof-everysec", "sqlite wal-normal", "sqlite delete-full", "postgres@18 async-commit")


@pytest.fixture(scope="module", params=FILE_SYSTEMS)
def file_system(request: pytest.FixtureRequest) -> FileSystem:
    chosen: FileSystem = request.param
    reason = why_not(chosen)
    if reason is not None:
        pytest.skip(reason)
    return chosen


@pytest.mark.xdist_group("loop devices")
@pytest.mark.parametrize("case", [case for case in CASES if case.name in QUICK], ids=lambda case: case.name)
def test_the_model_keeps_what_the_kernel_keeps(file_system: FileSystem, case: Case) -> None:
    result = compare(case, file_system)
    assert result.differing == {}, result
    assert result.model_loss == result.real_loss
    assert result.real_loss.acked > 0


@pytest.mark.xdist_group("loop devices")
def test_nothing_is_left_behind(file_system: FileSystem) -> None:
    with RealDisk(file_system) as disk:
        (disk.folder / "file").write_text("x")
        folder = disk.folder
        mounts = Path("/proc/mounts").read_text()
        assert str(folder) in mounts
        disk.power_loss()  # a file system that is shut down must go as well
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert not folder.exists()
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert not any(str(folder.parent) in text for text in backing)
