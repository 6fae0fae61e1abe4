"""What becomes of memory whose files rot: 10,000 flipped bits on each engine, as in `tools/attack/flips.py`.

    python bench/flips.py                              every engine, 10,000 flips of each: most of an hour
    python bench/flips.py --engine redis --times 500

What is found is added to what results/flips.json has of the engine (`mended` is what was found before a correction);
give each run a seed of its own. Exit code 1 if anything came back other than right, marked as damaged, or with an
error.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.attack import flips
from tools.attack.assault import Assault

RESULTS = Path(__file__).parent / "results" / "flips.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engine", action="append", choices=list(flips.ENGINES), help="may be repeated")
    parser.add_argument("--times", type=int, default=flips.TIMES, help="flips of each engine")
    parser.add_argument("--seconds", type=float, default=3_600.0, help="for each engine, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the JSON goes")
    asked = parser.parse_args()
    results = json.loads(asked.output.read_text()) if asked.output.exists() else {}
    held = True
    for name in asked.engine or list(flips.ENGINES):
        assault, started = Assault(asked.seconds, asked.seed, asked.times), time.monotonic()
        flips.attack(assault, name)
        before = results.get(name, {"seeds": [], "elapsed_s": 0, "counts": {}, "findings": []})
        results[name] = {
            "seeds": [*before["seeds"], asked.seed],
            "elapsed_s": before["elapsed_s"] + round(time.monotonic() - started),
            "counts": dict(Counter(before["counts"]) + assault.counts),
            "findings": before["findings"] + assault.findings,
        }
        held = held and not assault.findings
        asked.output.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(results[name]), flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
