"""Every header of src/ compiles alone: whoever includes it needs to know nothing else.

One unit per header, with the flags that this build gives its module. With ccache the second run takes a second.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import tree


ISA_FOLDERS = ("ref/", "avx2/", "avx512/", "avx512bf16/")


def flags_by_module(build):
    """{module: (compiler and flags, working folder)} from compile_commands.json."""
    commands = {}
    for unit in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(unit["file"]).as_posix()
        if "/src/" not in path or path.endswith("_test.cc"):
            continue
        module, _, rest = path.split("/src/", 1)[1].partition("/")
        if module in commands or (module == "kernels" and rest.startswith(ISA_FOLDERS)):
            continue
        words = iter(shlex.split(unit["command"]))
        flags = []
        for word in words:
            if word in ("-o", "-c", "-MT", "-MF"):
                next(words)
            elif word != "-MD":
                flags.append(word)
        commands[module] = (flags, unit["directory"])
    return commands


def main():
    args = tree.arguments(__doc__, build_dir=True).parse_args()
    commands = flags_by_module(args.build)
    out = args.build / "header_checks"
    out.mkdir(exist_ok=True)
    ccache = [shutil.which("ccache")] if shutil.which("ccache") else []
    # A tier's own headers need that tier's flags and are part of its one unit.
    own = tuple(f"src/kernels/{folder}" for folder in ISA_FOLDERS)
    headers = [path for path in tree.files(args.root, "src") if path.endswith(".h") and not path.startswith(own)]

    def compile_alone(path):
        module = path.split("/")[1]
        if module not in commands:  # header only: any module's flags do
            module = next(iter(commands))
        flags, directory = commands[module]
        unit = out / (path.replace("/", "__") + ".cc")
        content = f'#include "{path.removeprefix("src/")}"\n'
        if not unit.exists() or unit.read_text() != content:
            unit.write_text(content)
        # No code is wanted, only the compiler's opinion. Headers of tests may use what cmake/Modules.cmake defines for tests.
        defined = [f'-DSTERLING_SOURCE_DIR="{args.root}"', '-DSTERLING_TEST_MODEL=""']
        command = [*ccache, *flags, *defined, "-O0", "-I", str(args.root / "src"), "-c", str(unit), "-o", f"{unit}.o"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        return None if done.returncode == 0 else f"{path}: does not compile alone:\n{done.stderr[:2000]}"

    with concurrent.futures.ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        problems = [problem for problem in pool.map(compile_alone, headers) if problem]
    tree.finish("headers", problems, len(headers))


if __name__ == "__main__":
    sys.exit(main())
