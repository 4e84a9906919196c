"""What the gates share: the project's files, C++ text without comments and strings, and the way they report."""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED_FOLDERS = {".git", ".venv", "build", "target", "__pycache__", "node_modules"}
CXX = (".cc", ".h", ".inl")


def files(root, under=""):
    """Every file of the project below root/under, sorted, as paths relative to root (with /)."""
    found = []
    stack = [root / under] if under else [root]
    while stack:
        folder = stack.pop()
        if not folder.is_dir():
            continue
        for entry in folder.iterdir():
            if entry.is_symlink():
                continue
            if entry.is_dir():
                if entry.name not in SKIPPED_FOLDERS:
                    stack.append(entry)
            else:
                found.append(entry.relative_to(root).as_posix())
    return sorted(found)


def text(root, path):
    return (root / path).read_text(encoding="utf-8", errors="replace")


_CXX_TOKEN = re.compile(
    r'R"(?P<mark>[^()\\ ]{0,16})\((?:.|\n)*?\)(?P=mark)"'  # raw string
    r'|"(?:\\.|[^"\\\n])*"'  # string
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # character, not a digit separator
    r"|//[^\n]*"
    r"|/\*(?:.|\n)*?\*/"
)


def strip_cxx(source):
    """C++ with comments and the contents of literals blanked; line numbers stay."""

    def blank(match):
        found = match.group(0)
        kept = '""' if found[0] in "R\"" else " "
        return kept + "\n" * found.count("\n")

    return _CXX_TOKEN.sub(blank, source)


def allow_list(path):
    """Lines `path: reason` (# comments) -> {path: reason}; a line without a reason is a mistake of its own."""
    allowed = {}
    if path.exists():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            key, colon, reason = line.partition(": ")
            if not colon or not reason.strip():
                sys.exit(f"{path}:{number}: expected `path: reason`")
            allowed[key.strip()] = reason.strip()
    return allowed


def arguments(description, build_dir=False):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the project (default: this one)")
    if build_dir:
        parser.add_argument("build", type=pathlib.Path, help="a configured and built folder")
    return parser


def finish(gate, problems, checked, notes=()):
    """Prints and ends the program: 0 when there are no problems, else 1. A gate that saw nothing proves nothing."""
    for note in notes:
        print(f"note: {note}")
    for problem in problems:
        print(f"{gate}: {problem}")
    if not checked and not problems:
        print(f"{gate}: found nothing to check")
        sys.exit(1)
    print(f"{gate}: {len(problems)} problems in {checked} checked")
    sys.exit(1 if problems else 0)
