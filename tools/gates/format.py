"""clang-format (.clang-format) would change nothing. Exit code 77 (skipped) where clang-format 16 is not installed.

--fix formats in place. Only version 16 counts: other versions place some breaks otherwise.
"""

import concurrent.futures
import re
import shutil
import subprocess
import sys

import tree

SKIPPED = 77


def main():
    parser = tree.arguments(__doc__)
    parser.add_argument("--fix", action="store_true", help="format in place")
    args = parser.parse_args()
    formatter = shutil.which("clang-format-16")
    if formatter is None:
        print("format: clang-format-16 is not installed (apt-get install clang-format-16)")
        sys.exit(SKIPPED)
    sources = [p for under in ("src", "tests", "bench") for p in tree.files(args.root, under) if p.endswith((".cc", ".h"))]
    if args.fix:
        subprocess.run([formatter, "-i", *sources], cwd=args.root, check=True)
        return

    def check(paths):
        command = [formatter, "--dry-run", "--Werror", *paths]
        done = subprocess.run(command, cwd=args.root, capture_output=True, text=True)
        return set(re.findall(r"^(\S+?):\d+:\d+: error:", done.stderr, re.MULTILINE))

    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        bad = sorted(set().union(*pool.map(check, (sources[::2], sources[1::2]))))
    problems = [f"{path}: python3 tools/gates/format.py --fix would change it" for path in bad]
    tree.finish("format", problems, len(sources))


if __name__ == "__main__":
    sys.exit(main())
