"""Every test on disk runs: each *_test.cc below src/ and tests/, each *_test.py below tests/ and tools/ is a ctest of this build."""

import json
import subprocess
import sys

import tree


def main():
    args = tree.arguments(__doc__, build_dir=True).parse_args()
    listing = subprocess.run(
        ["ctest", "--show-only=json-v1"], cwd=args.build, capture_output=True, text=True, check=True
    ).stdout
    commands = [test.get("command", []) for test in json.loads(listing)["tests"]]
    programs = {command[0].rsplit("/", 1)[-1] for command in commands if command}
    words = {word for command in commands for word in command}

    problems, checked = [], 0
    for path in tree.files(args.root):
        stem = path.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        if path.startswith("src/") and path.endswith("_test.cc"):
            expected = f"{path.split('/')[1]}_{stem}"
            found = expected in programs
        elif path.startswith("tests/") and path.endswith("_test.cc"):
            expected = stem
            found = any(program == stem or program.endswith("_" + stem) for program in programs)
        elif path.startswith(("tests/", "tools/")) and path.endswith("_test.py"):
            expected = path
            found = any(word.endswith("/" + path) for word in words)
        else:
            continue
        checked += 1
        if not found:
            problems.append(f"{path}: no ctest runs it (looked for {expected})")
    tree.finish("registered", problems, checked)


if __name__ == "__main__":
    sys.exit(main())
