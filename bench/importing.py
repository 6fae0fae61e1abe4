"""What `import recollect` costs: Python with and without it, in turns, and the difference.

Usage: python bench/importing.py [--rounds 21]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "importing.json"


def seconds(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    differences = sorted(1000 * (seconds("import recollect") - seconds("pass")) for _ in range(rounds))
    figures = {
        "import_ms_median": round(statistics.median(differences), 1),
        "import_ms_p10": round(differences[rounds // 10], 1),
        "import_ms_p90": round(differences[-1 - rounds // 10], 1),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(figures, indent=2) + "\n")
    print("import recollect:", ", ".join(f"{name} {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
