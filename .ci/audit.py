"""What an audit of the lock found: audit.py FOLDER/audit.json, as `pip-audit --format json` writes it.

Exit code 1 where a newer version closes a known hole. Without a report, or where the service knew no package, it says NOT RUN.
"""

import json
import sys
from pathlib import Path


def main(path: Path) -> int:
    found = json.loads(path.read_text())["dependencies"] if path.exists() else []
    known = [one for one in found if "vulns" in one]
    if not known:  # pip-audit calls that "No known vulnerabilities found"
        print("\n*  NOT RUN: the audit of the lock. No service answers here.  *\n", file=sys.stderr)
        return 0
    holes = [(one, hole) for one in known for hole in one["vulns"]]
    print(f"audited: {len(known)} of {len(found)} locked packages, {len(holes)} known holes")
    for one, hole in holes:
        closed = ", ".join(hole["fix_versions"])
        remedy = (
            f"closed by {closed}: raise its floor in pyproject.toml; make lock" if closed else "no version closes it"
        )
        print(f"{one['name']} {one['version']}: {hole['id']}, {remedy}", file=sys.stderr)
    return int(any(hole["fix_versions"] for _, hole in holes))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
