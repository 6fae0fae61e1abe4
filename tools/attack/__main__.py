"""`python -m tools.attack NAME [--seconds N] [--seed N] [--times N]`; `all` runs one after the other.

Exit code 0: everything held; 1: something did not, and it is said; 2: usage. One line of counts at the end.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time

from tools.attack.assault import Assault

ATTACKS = {
    "cancellation": 300,
    "chat-kills": 900,
    "flips": 3_600,
    "fuzz": 300,
    "hostile-http": 600,
    "hostile-redis": 300,
    "interrupts": 300,
    "model": 300,
    "postgres-kills": 600,
}
"""Each with the seconds that it takes unless told otherwise: enough for the figures in docs/security.md."""


def run(name: str, seconds: float, seed: int, times: int | None) -> bool:
    """Whether everything held."""
    assault = Assault(seconds, seed, times)
    started = time.monotonic()
    importlib.import_module(f"tools.attack.{name.replace('-', '_')}").attack(assault)
    told = ", ".join(f"{count:,} {what}" for what, count in assault.counts.items()) or "nothing was tried"
    for finding in assault.findings:
        print(f"✗ {name}: {finding}")
    verdict = "held" if assault.counts and not assault.findings else f"{len(assault.findings)} found"
    print(f"{name}: {verdict}: {told} in {time.monotonic() - started:.0f} s (seed {seed})", flush=True)
    return bool(assault.counts) and not assault.findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.attack", description=__doc__)
    parser.add_argument("name", choices=[*ATTACKS, "all"])
    parser.add_argument("--seconds", type=float, help="how long at most")
    parser.add_argument("--times", type=int, help="how many attempts at most")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    names = list(ATTACKS) if asked.name == "all" else [asked.name]
    held = [run(name, asked.seconds or ATTACKS[name], asked.seed, asked.times) for name in names]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
