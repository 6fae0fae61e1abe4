"""Which storage is refused, by what mountinfo says of it."""

from pathlib import Path

import pytest

from recollect.chat.ephemeral import (
    EphemeralStorage,
    ephemeral_reason,
    mount_of,
    parse_mounts,
    refuse_ephemeral,
)

HOST = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:27 / /dev/shm rw,relatime shared:4 - tmpfs tmpfs rw
44 27 254:1 / /srv/my\\040data rw,relatime shared:7 master:2 - xfs /dev/vdb rw
45 27 0:50 / /srv/my\\040data/cache rw,relatime - tmpfs tmpfs rw
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
        (POD, "/cache/memory", "/cache is a Kubernetes emptyDir, which is deleted with the pod"),
        (POD, "/ram", "/ram is a tmpfs, which is memory"),
        (POD, "/data/memory", None),
        (POD, "/local", None),
        ("", "/anywhere", None),
        ("garbage\n1 2 3 - \n", "/anywhere", None),
    ],
)
def test_reason(mountinfo: str, path: str, reason: str | None) -> None:
    assert ephemeral_reason(path, mountinfo) == reason


def test_a_mount_over_a_mount_counts() -> None:
    over = HOST + "50 27 0:70 / /srv/my\\040data rw - tmpfs tmpfs rw\n"
    found = mount_of("/srv/my data/memory", parse_mounts(over))
    assert found is not None
    assert found.kind == "tmpfs"


def test_the_refusal_is_one_clear_sentence(tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text("1 0 0:1 / / rw - tmpfs tmpfs rw\n")
    with pytest.raises(EphemeralStorage) as refusal:
        refuse_ephemeral(tmp_path, mountinfo)
    sentence = str(refusal.value)
    assert "would be forgotten: / is a tmpfs" in sentence
    assert "--allow-ephemeral" in sentence
    assert "\n" not in sentence


def test_without_mountinfo_nothing_is_refused(tmp_path: Path) -> None:
    refuse_ephemeral(tmp_path, tmp_path / "no such file")
