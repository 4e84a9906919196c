"""Words that must not stand where they stand: forbidden.toml says which, where and why."""

import re
import sys
import tomllib

import tree


def under(path, prefixes):
    return any(path == prefix or (path.startswith(prefix) and (prefix == "" or prefix.endswith("/"))) for prefix in prefixes)


def main():
    args = tree.arguments(__doc__).parse_args()
    with open(args.root / "tools" / "gates" / "forbidden.toml", "rb") as config:
        rules = tomllib.load(config)["rule"]
    for rule in rules:
        rule["compiled"] = re.compile(rule["pattern"])
        rule["skipped"] = re.compile(rule["skip"]) if "skip" in rule else None
    problems, checked = [], 0
    for path in tree.files(args.root):
        wanted = [
            rule
            for rule in rules
            if under(path, rule["in"])
            and not under(path, rule.get("except", {}))
            and not (rule["skipped"] and rule["skipped"].search(path))
            and (rule.get("raw") or path.endswith(tree.CXX))
        ]
        if not wanted:
            continue
        raw = (args.root / path).read_bytes()
        if b"\0" in raw:
            continue
        checked += 1
        source = raw.decode("utf-8", errors="replace")
        stripped = None
        for rule in wanted:
            if rule.get("raw"):
                body = source
            else:
                stripped = tree.strip_cxx(source) if stripped is None else stripped
                body = stripped
            for match in rule["compiled"].finditer(body):
                line = body.count("\n", 0, match.start()) + 1
                problems.append(f"{path}:{line}: {rule['name']}: {match.group(0).strip()!r}; {rule['reason']}")
    tree.finish("forbidden", problems, checked)


if __name__ == "__main__":
    sys.exit(main())
