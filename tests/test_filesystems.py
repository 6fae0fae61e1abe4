"""Which file system a path is on and whether it forgets, by what mountinfo says and by what the kernel does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.filesystems import mount_of, mount_under, mountinfo_of

HOST = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:27 / /dev/shm rw,relatime shared:4 - tmpfs tmpfs rw
44 27 254:1 / /srv/my\\040data rw,relatime shared:7 master:2 - xfs /dev/vdb rw
45 44 0:50 / /srv/my\\040data/cache rw,relatime - tmpfs tmpfs rw
"""
CONTAINER = """\
700 600 0:60 / / rw,relatime master:30 - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
701 700 0:61 / /proc rw - proc proc rw
702 700 8:1 /var/lib/docker/volumes/mem/_data /data rw,relatime master:1 - ext4 /dev/sda1 rw
703 700 0:63 / /run/secrets rw - tmpfs tmpfs rw
"""
POD = """\
800 700 0:60 / / rw,relatime - overlay overlay rw
801 800 8:1 /var/lib/kubelet/pods/3f1c/volumes/kubernetes.io~empty-dir/cache /cache rw - ext4 /dev/sda1 rw
802 800 0:99 / /ram rw - tmpfs tmpfs rw,size=1024k
803 800 8:16 / /data rw - ext4 /dev/disk/by-id/pvc-1 rw
804 800 8:1 /var/lib/kubelet/pods/3f1c/volumes/kubernetes.io~local-volume/pv /local rw - ext4 /dev/sda1 rw
"""
ROOTLESS = "700 600 0:60 / / rw - fuse.fuse-overlayfs fuse-overlayfs rw\n"


@pytest.mark.parametrize(
    ("mountinfo", "path", "reason"),
    [
        (HOST, "/home/me/memory", None),
        (HOST, "/dev/shm/memory", "/dev/shm is a tmpfs, which is memory"),
        (HOST, "/srv/my data/memory", None),
        (HOST, "/srv/my data/cache/memory", "/srv/my data/cache is a tmpfs, which is memory"),
        (HOST, "/srv/my data/cachet", None),
        (CONTAINER, "/app/memory", "/ is a container's own layer (overlay)"),
        (CONTAINER, "/data", None),
        (CONTAINER, "/data/deep/down", None),
        (CONTAINER, "/database", "/ is a container's own layer (overlay)"),
        (ROOTLESS, "/app/memory", "/ is a container's own layer (fuse-overlayfs)"),
        (POD, "/cache/memory", "/cache is a Kubernetes emptyDir, which is deleted with the pod"),
        (POD, "/ram", "/ram is a tmpfs, which is memory"),
        (POD, "/data/memory", None),
        (POD, "/local", None),
    ],
)
def test_why_it_forgets(mountinfo: str, path: str, reason: str | None) -> None:
    mount = mount_of(path, mountinfo)
    assert mount is not None
    assert mount.why_it_forgets == reason


@pytest.mark.parametrize("mountinfo", ["", "garbage\n1 2 3 - \n", "a b 0:1 / / rw - tmpfs tmpfs rw\n"])
def test_what_is_no_mountinfo_tells_nothing(mountinfo: str) -> None:
    assert mount_of("/anywhere", mountinfo) is None


def test_a_mount_over_a_mount_counts() -> None:
    found = mount_of("/srv/my data/memory", HOST + "50 44 0:70 / /srv/my\\040data rw - tmpfs tmpfs rw\n")
    assert found is not None
    assert found.kind == "tmpfs"


def test_a_mount_further_up_hides_what_was_mounted_below() -> None:
    covered = HOST + "50 27 8:9 / /srv rw - ext4 /dev/sdb rw\n"
    found = mount_of("/srv/my data/cache/memory", covered)
    assert found is not None
    assert (found.kind, found.point) == ("ext4", "/srv")


def test_in_a_chroot_the_mount_of_the_root_is_not_seen() -> None:
    mountinfo = "90 50 0:70 / /proc rw - proc proc rw\n91 50 0:71 / /data rw - tmpfs tmpfs rw\n"
    found = mount_of("/data/memory", mountinfo)
    assert found is not None
    assert found.kind == "tmpfs"
    assert mount_of("/elsewhere", mountinfo) is None


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="only Linux has mountinfo")
@pytest.mark.parametrize("folder", ["/", "/proc", "/dev", "/dev/shm", "/sys", "/tmp", str(Path.home())])
def test_as_the_kernel_has_it(folder: str) -> None:
    if not Path(folder).is_dir():
        pytest.skip(f"there is no {folder} on this machine")
    told = subprocess.run(
        ["stat", "--file-system", "--format=%T", folder], capture_output=True, text=True, check=True
    )
    mount = mount_under(Path(folder))
    assert mount is not None
    assert (told.stdout.strip() in ("tmpfs", "ramfs")) == (mount.goes_with == "memory")


COVERED = """
import os, subprocess, sys
from pathlib import Path
from recollect.filesystems import mount_under
home = Path(sys.argv[1])
def mount(folder):
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", folder.name, folder], check=True)
inner = home / "outer" / "inner"
(home / "outer").mkdir()
mount(inner)
print(mount_under(inner).source)
mount(home / "outer")
inner.mkdir()
print(mount_under(inner).source, mount_under(home / "not" / "yet").kind == mount_under(home).kind)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_real_mounts_that_cover_each_other(tmp_path: Path) -> None:
    told = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", COVERED, str(tmp_path)], capture_output=True, text=True
    )
    if "unshare failed" in told.stderr:
        pytest.skip(f"no mount namespace here: {told.stderr.strip()}")
    assert told.returncode == 0, told.stderr
    assert told.stdout.split() == ["inner", "outer", "True"]


def test_a_process_that_is_not_there_tells_nothing() -> None:
    assert mountinfo_of(2**22 + 1) is None
