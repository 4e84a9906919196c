"""Includes go down only.

layers.txt lists the modules of src/ from bottom to top with what each may include. Checked here: the table itself; each
#include "…" of src/; each module's DEPS in CMake (within the table, and naming all that its sources include); outside headers
that belong to certain modules (external_headers.txt).
"""

import re
import sys

import tree

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
KEYWORDS = {"DEPS", "LIBS", "SRCS", "TEST_DEPS", "TEST_LIBS", "EXCLUDE"}


def read_layers(path, problems):
    """{module: set of modules it may include}, in file order."""
    layers = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        module, colon, allowed = line.partition(":")
        if not colon:
            problems.append(f"{path.name}:{number}: expected `module: modules`")
            continue
        for name in allowed.split():
            if name not in layers:
                problems.append(f"{path.name}:{number}: {module} may include {name}, which does not stand above it")
        layers[module.strip()] = set(allowed.split())
    return layers


def module_lists(root, module):
    """The DEPS and TEST_DEPS of src/<module>/CMakeLists.txt as two sets; None when it has no add_module."""
    path = root / "src" / module / "CMakeLists.txt"
    if not path.exists():
        return None
    source = re.sub(r"#[^\n]*", "", path.read_text())
    call = re.search(r"add_module\s*\(\s*(\w+)([^)]*)\)", source)
    if not call:
        return None
    lists, current = {"DEPS": set(), "TEST_DEPS": set()}, None
    for word in call.group(2).split():
        if word in KEYWORDS:
            current = word
        elif current in lists:
            lists[current].add(word)
    return lists["DEPS"], lists["TEST_DEPS"]


def check_file(root, path, layers, declared, external, problems):
    module = path.split("/")[1]
    is_test = path.endswith("_test.cc") or "/test_" in path or "/testing/" in path
    source = tree.text(root, path)
    for match in INCLUDE.finditer(source):
        quoted, angled = match.groups()
        where = f"{path}:{source.count(chr(10), 0, match.start()) + 1}"
        if angled is not None:
            for prefix, modules in external.items():
                if angled.startswith(prefix) and module not in modules and not is_test:
                    problems.append(f"{where}: <{angled}> belongs to {' '.join(sorted(modules))} only")
            continue
        target = quoted.split("/")[0]
        if not (root / "src" / quoted).exists():
            if quoted != "textkit.h":  # the Rust library's generated C header
                problems.append(f'{where}: "{quoted}" is no file of src/ (include paths start there)')
            continue
        if target == module:
            continue
        deps, test_deps = declared[module]
        if is_test and target in test_deps:
            continue
        if target not in layers[module]:
            problems.append(f'{where}: {module} may not include "{quoted}"; layers.txt allows {sorted(layers[module])}')
        elif target not in deps:
            problems.append(f'{where}: includes "{quoted}", but {target} is not among the DEPS of src/{module}/CMakeLists.txt')


def main():
    args = tree.arguments(__doc__).parse_args()
    problems = []
    gates = args.root / "tools" / "gates"
    layers = read_layers(gates / "layers.txt", problems)
    external = {}
    if (gates / "external_headers.txt").exists():
        for line in (gates / "external_headers.txt").read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                prefix, _, modules = line.partition(":")
                external[prefix.strip()] = set(modules.split())

    order = list(layers)
    declared = {}
    for module in order:
        lists = module_lists(args.root, module)
        declared[module] = lists or (set(), set())
        if lists is None:
            continue
        deps, test_deps = lists
        for extra in sorted(deps - layers[module]):
            problems.append(f"src/{module}/CMakeLists.txt: DEPS names {extra}; layers.txt allows {sorted(layers[module])}")
        for extra in sorted(test_deps):
            if extra not in layers:
                problems.append(f"src/{module}/CMakeLists.txt: TEST_DEPS names {extra}, which is no module")

    sources = [path for path in tree.files(args.root, "src") if path.endswith(tree.CXX)]
    for path in sources:
        module = path.split("/")[1]
        if module not in layers:
            problems.append(f"{path}: src/{module} is not in layers.txt")
            continue
        check_file(args.root, path, layers, declared, external, problems)
    tree.finish("layers", problems, len(sources))


if __name__ == "__main__":
    sys.exit(main())
