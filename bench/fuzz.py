"""Ten thousand mutations for each parser of what others write; see tests/fuzz/parsers.py.

python bench/fuzz.py [--count 10000] [--seed 1] [--only RESP] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fuzz.parsers import PARSERS, failures

RESULTS = Path(__file__).parent / "results" / "fuzz.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path, help="where the mutations that failed are written")
    arguments = parser.parse_args()
    rows = json.loads(RESULTS.read_text())["parsers"] if RESULTS.exists() else {}
    failed = False
    for name in (name for name in PARSERS if arguments.only in name):
        began, kinds = time.monotonic(), Counter[str]()
        with tempfile.TemporaryDirectory(prefix="recollect-fuzz-") as folder:
            for data, why in failures(name, arguments.count, arguments.seed, Path(folder)):
                kinds[why[:200]] += 1
                if arguments.keep is not None and kinds[why[:200]] == 1:
                    arguments.keep.mkdir(parents=True, exist_ok=True)
                    (arguments.keep / f"{name.replace(' ', '-')}-{len(kinds)}").write_bytes(data)
        seconds = time.monotonic() - began
        rows[name] = {
            "mutations": arguments.count,
            "failures": sum(kinds.values()),
            "seconds": round(seconds, 1),
        }
        print(f"{'✗' if kinds else '✓'} {name}: {arguments.count:,} mutations, {seconds:.1f} s", flush=True)
        for why, count in kinds.most_common(10):
            print(f"    {count:,} × {why}")
        RESULTS.write_text(
            json.dumps({"seed": arguments.seed, "parsers": rows}, indent=1, ensure_ascii=False) + "\n"
        )
        failed = failed or bool(kinds)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
