"""Files and functions stay small enough to read.

Hard limits: .cc 800 lines (model/arch: 200), headers 300, tests 800, Python and Rust 800, shell 400, a C++ function 120. Above the soft
ones (.cc 400, function 60) a note is printed. size_allow.txt holds exceptions with reasons; `file#function` excepts a function.
"""

import re
import sys

import tree

HARD = {".cc": 800, ".inl": 800, ".h": 300, ".py": 800, ".rs": 800, ".sh": 400}
SOFT_CC = 400
ARCH = 200
FUNCTION_HARD = 120
FUNCTION_SOFT = 60

SCOPE = re.compile(r"\b(namespace|class|struct|enum|union|extern)\b")


def limit(path):
    suffix = "." + path.rsplit(".", 1)[-1] if "." in path.rsplit("/", 1)[-1] else ""
    if path.startswith("src/model/arch/") and suffix == ".cc" and not path.endswith("_test.cc"):
        return ARCH
    return HARD.get(suffix)


def functions(source):
    """(name, first line, lines) of each function: a brace at namespace or class scope whose head has parentheses."""
    body = re.sub(r"^\s*#.*$", "", tree.strip_cxx(source), flags=re.MULTILINE)
    scopes, head_start = [], 0  # the open braces as (is a scope, name, first line)
    for match in re.finditer(r"[{};]", body):
        mark, at = match.group(0), match.start()
        head = body[head_start:at]
        head_start = at + 1
        if mark == "{":
            outer = all(is_scope for is_scope, _, _ in scopes)
            called = re.findall(r"([A-Za-z_~][\w:~]*)\s*\(", head)
            is_function = outer and called and not head.rstrip().endswith("=")
            line = body.count("\n", 0, at - len(head.lstrip())) + 1
            is_scope = bool(SCOPE.search(head)) and not is_function
            scopes.append((is_scope, called[0] if is_function else None, line))
        elif mark == "}" and scopes:
            _, name, line = scopes.pop()
            if name:
                yield name, line, body.count("\n", 0, at) + 2 - line


def main():
    args = tree.arguments(__doc__).parse_args()
    allowed = tree.allow_list(args.root / "tools" / "gates" / "size_allow.txt")
    problems, notes, checked, used = [], [], 0, set()
    for path in tree.files(args.root):
        most = limit(path)
        if most is None:
            continue
        checked += 1
        source = tree.text(args.root, path)
        lines = source.count("\n")
        if lines > most:
            used.add(path)
            if path not in allowed:
                problems.append(f"{path}: {lines} lines, the limit is {most}")
        elif path.endswith(".cc") and not path.endswith("_test.cc") and lines > SOFT_CC:
            notes.append(f"{path}: {lines} lines, {SOFT_CC} would be better")
        if not path.endswith(tree.CXX):
            continue
        for name, first, length in functions(source):
            key = f"{path}#{name}"
            if length > FUNCTION_HARD:
                used.add(key)
                if key not in allowed:
                    problems.append(f"{path}:{first}: {name}() has {length} lines, the limit is {FUNCTION_HARD}")
            elif length > FUNCTION_SOFT:
                notes.append(f"{path}:{first}: {name}() has {length} lines, {FUNCTION_SOFT} would be better")
    for stale in sorted(set(allowed) - used):
        problems.append(f"size_allow.txt: {stale} needs no exception any more")
    tree.finish("sizes", problems, checked, notes)


if __name__ == "__main__":
    sys.exit(main())
