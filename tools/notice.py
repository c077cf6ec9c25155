"""Writes NOTICE: the licence of every package that requirements/*.txt pins.

python -m tools.notice      reads the licences from the packages that are installed

A package that is not installed keeps the licence that NOTICE has for it.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
NOTICE: Final = ROOT / "NOTICE"
UNKNOWN: Final = "unknown"
PINNED: Final = re.compile(r"^([a-z0-9._-]+)==", re.MULTILINE)
LINE: Final = re.compile(r"^  ([a-z0-9._-]+) +(\S.*)$", re.MULTILINE)

HEAD: Final = """\
Barnabas
Copyright 2026 The Barnabas authors

Barnabas is licensed under the Apache License, Version 2.0 (see LICENSE).

The names, types and versions of the fields of Kafka's messages (src/barnabas/protocol/schemas) are facts of the
message definitions of Apache Kafka, which is licensed under the Apache License, Version 2.0. Barnabas contains no code
of Apache Kafka and is no product of the Apache Software Foundation. Apache Kafka, Apache Spark and Apache ZooKeeper are
trademarks of The Apache Software Foundation.

Compiled wheels contain the runtime library of mypyc, which is part of mypy (MIT; parts are of CPython, PSF-2.0).

crc32c is licensed under the GNU Lesser General Public License, version 2.1 or later. Barnabas does not contain it and
does not change it: the installer installs it as a package of its own, which Python loads when Barnabas runs, and which
you may replace by another version. Its sources are at https://github.com/ICRAR/crc32c.

The other packages below are also installed beside Barnabas and are not part of it. The lists come from the pinned
versions in requirements/ (`python -m tools.notice` writes them).
"""
SECTIONS: Final = (
    ("What a broker, a client and the command line need (requirements/run.txt)", ("run",)),
    ("What builds the package (requirements/build.txt)", ("build",)),
    ("Extras, tests, benchmarks and docs (other files in requirements/)", ()),
)
# What packages without a licence expression call their licences, in SPDX's terms.
SPDX: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


def pins() -> dict[str, set[str]]:
    """The names of pinned packages by the names of the files."""
    return {
        path.stem: set(PINNED.findall(path.read_text(encoding="utf-8")))
        for path in sorted((ROOT / "requirements").glob("*.txt"))
    }


def licence_of(package: PackageMetadata) -> str:
    for expression in package.get_all("License-Expression") or []:
        return str(expression)
    first_line = "".join(package.get_all("License") or []).partition("\n")[0].strip()
    classifiers = [
        each.rpartition("::")[2].strip()
        for each in package.get_all("Classifier") or []
        if each.startswith("License ::") and each != "License :: OSI Approved"
    ]
    # Old tools write UNKNOWN where a package leaves the field out.
    names = [first_line] if first_line.lower() not in ("", UNKNOWN) else classifiers
    return " OR ".join(SPDX.get(name, name) for name in names) or UNKNOWN


def noted() -> dict[str, str]:
    """The licences that NOTICE has."""
    return dict(LINE.findall(NOTICE.read_text(encoding="utf-8"))) if NOTICE.exists() else {}


def licences() -> dict[str, str]:
    before = noted()
    found = {}
    for name in set().union(*pins().values()):
        try:
            found[name] = licence_of(metadata(name))
        except PackageNotFoundError:
            found[name] = before.get(name, UNKNOWN)
    return found


def text() -> str:
    by_file, known = pins(), licences()
    left = set(known)
    # A package is listed once, where it is needed first; what builds the package is in run.txt too.
    by_file["run"] -= by_file["build"] - {"librt", "mypy-extensions"}
    parts = [HEAD]
    for title, files in SECTIONS:
        names = left & set().union(*(by_file[file] for file in files)) if files else left
        left = left - names
        width = max(map(len, names))
        lines = [f"  {name:{width}}  {known[name]}\n" for name in sorted(names)]
        parts.append(f"{title}:\n\n{''.join(lines)}")
    return "\n".join(parts)


def main() -> int:
    NOTICE.write_text(text(), encoding="utf-8")
    unknown = sorted(name for name, licence in noted().items() if licence == UNKNOWN)
    if unknown:
        print(f"the licences of these packages are not known: {', '.join(unknown)}", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
