"""The durability model against the real kernel, every engine and policy on every file system. Root only.

python bench/kernel.py [--rounds 1]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.disk.comparison import CASES, compare
from tests.disk.realdisk import FILE_SYSTEMS, why_not


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    rounds = parser.parse_args().rounds
    agreed = total = 0
    for file_system in FILE_SYSTEMS:
        reason = why_not(file_system)
        if reason is not None:
            print(f"{file_system}: skipped: {reason}")
            continue
        for case in CASES * rounds:
            began = time.monotonic()
            result = compare(case, file_system)
            same = not result.differing and result.model_loss == result.real_loss
            total += 1
            agreed += same
            print(
                f"{file_system:5} {case.name:26} acked {result.real_loss.acked:6}"
                f"  lost {len(result.real_loss.lost):6} (kernel) {len(result.model_loss.lost):6} (model)"
                f"  files {'equal' if not result.differing else f'DIFFER {result.differing}'}"
                f"  {time.monotonic() - began:.1f} s",
                flush=True,
            )
    print(f"{agreed} of {total} agree")
    return 0 if agreed == total else 1


if __name__ == "__main__":
    sys.exit(main())
