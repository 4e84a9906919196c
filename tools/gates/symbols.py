"""What the object files of src/ carry.

ISA units (src/kernels/{ref,avx2,avx512,avx512bf16}) export one symbol each and no weak or unique ones: a weak function compiled there with newer
instructions could become the program's only copy. All modules but cli/: no mutable data outside of objects (.data, .bss, thread
storage), guards of constant tables aside. globals_allow.txt holds exceptions with reasons.
"""

import re
import subprocess
import sys

import tree

ISA_FOLDERS = ("ref", "avx2", "avx512", "avx512bf16")
OBJECT = re.compile(r"src/(?P<module>[^/]+)/CMakeFiles/[^/]+\.dir/(?P<path>.+)\.o$")
ANY_EXPORT = set("TDBRGCS")
WEAK = set("WVui")
# Header-only libraries keep data in every unit that uses them.
OUTSIDE = re.compile(r"(boost|std|fmt|__gnu_cxx)::")


def objects(build):
    """[(module, path of the source inside the module, object file)] of the modules' libraries (tests left out)."""
    found = []
    for path in sorted(build.glob("src/**/*.o")):
        match = OBJECT.search(path.as_posix())
        if match and not match.group("path").endswith("_test.cc"):
            found.append((match.group("module"), match.group("path"), path))
    return found


def check_isa_unit(source, path, problems):
    listing = subprocess.run(["nm", "--defined-only", "-C", path], capture_output=True, text=True, check=True).stdout
    exported = []
    for line in listing.splitlines():
        fields = line.split(maxsplit=2)
        if len(fields) != 3:
            continue
        _, kind, name = fields
        if kind in WEAK:
            problems.append(f"{source}: weak or unique symbol {name} ({kind})")
        elif kind in ANY_EXPORT:
            exported.append(name)
    if len(exported) != 1:
        problems.append(f"{source}: exports {len(exported)} symbols, expected its table alone: {', '.join(exported[:5])}")


def check_data(group, allowed, used, problems):
    """group: [(source, object file)]"""
    command = ["objdump", "-t", "-C", *[str(path) for _, path in group]]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sources = {str(path): source for source, path in group}
    source = "?"
    for line in listing.splitlines():
        if line.endswith(("file format elf64-x86-64", "file format elf64-littleaarch64")):
            source = sources.get(line.split(":")[0].strip(), "?")
            continue
        match = re.match(r"^[0-9a-f]+ .{7} (\.[\w.$]+\S*)\s+([0-9a-f]+)\s+(.*)$", line)
        if not match:
            continue
        section, size, name = match.groups()
        name = name.replace(".hidden ", "").strip()
        mutable = section.startswith((".data", ".bss", ".tdata", ".tbss")) and not section.startswith(".data.rel.ro")
        if not mutable or int(size, 16) == 0 or name.startswith(("guard variable for", "DW.ref.", ".")):
            continue
        # Constants are called kName: g++ leaves constexpr arrays of addresses in .data.rel.local, and const objects with a
        # constructor in .bss. (That such a name is const is the compiler's and the reviewer's business.)
        if re.search(r"(^|::)k[A-Z]\w*$", name) or OUTSIDE.match(name):
            continue
        key = f"{source}#{name}"
        used.add(key)
        if key not in allowed:
            problems.append(f"{source}: mutable data {name} in {section}; pass it, or make it constexpr")


def main():
    args = tree.arguments(__doc__, build_dir=True).parse_args()
    problems, used = [], set()
    allowed = tree.allow_list(args.root / "tools" / "gates" / "globals_allow.txt")
    found = objects(args.build)
    for module, source, path in found:
        folder = source.split("/")[0]
        if module == "kernels" and folder in ISA_FOLDERS:
            check_isa_unit(f"src/kernels/{source}", path, problems)
    group = [(f"src/{module}/{source}", path) for module, source, path in found if module != "cli"]
    if group:
        check_data(group, allowed, used, problems)
    for stale in sorted(set(allowed) - used):
        problems.append(f"globals_allow.txt: {stale} needs no exception any more")
    tree.finish("symbols", problems, len(found))


if __name__ == "__main__":
    sys.exit(main())
