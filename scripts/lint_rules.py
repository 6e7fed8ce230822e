#!/usr/bin/env python3
"""The project's own rules, those that no general tool checks. Exit code 1 if one is broken.

Prints one line a finding, `file:line: what was found; what to do`.
"""
import collections
import os
import pathlib
import re
import subprocess
import sys

MAX_LINES = 800
MAX_CIRCLE = 3
# Circles from before this rule, by their first file; the numbers may only fall.
CIRCLES = {
    "tessera/graph/builder": 5,
    "tessera/import/export_weights": 5,
    "tessera/models/architecture": 4,
    "tessera/models/families": 4,
    "tessera/program/verify/interpretation": 5,
    "tessera/program/walk": 19,
    "tessera/runtime/arrays/arrays": 5,
    "tessera/runtime/cached_rows": 4,
    "tessera/runtime/kernels": 6,
    "tessera/tables/closed_form": 5,
    "tessera/simulate/engine": 4,
}
HEADER_COMMENT_LINES = 60
MAX_SOURCES = 25  # of a folder, tests apart; more have sub-folders that name what a reader looks for

# Folders of optional back ends, and their stubs: the only places that may ask which back end is present.
BACKEND_FOLDERS = re.compile(r"^tessera/(comm/(mpi|no_mpi|nccl|no_nccl)|runtime/\w+|cli/with_runtime)/")
STRATEGIES = re.compile(r"\b(megatron|zero|gpipe|summa|cannon|1f1b|deepspeed|ulysses)\b", re.IGNORECASE)
# Lowering knows splits, layouts and orders; a strategy's name there would be a special case.
STRATEGY_FREE = re.compile(r"^tessera/program/((lower|walk)\w*|walk/\w+)\.(h|cc)$")

# An op kind is defined once: by its row in the op table and its kernel. Others ask the row. Models choose
# kinds by name.
KIND_FREE = re.compile(r"^tessera/(?!graph/kinds|models/|.*_test\.cc|.*/test_\w+\.h)")
COMPARED = re.compile(r'(?:[!=]=\s*|(?:starts|ends)_with\(\s*)"(\w+)"')
LISTED = re.compile(r'\{\s*((?:"\w+"\s*,\s*)+"\w+")\s*,?\s*\}')

CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b.*\b(HAVE_\w+|TESSERA_(USE|HAVE)_\w+)")
RELATIVE_INCLUDE = re.compile(r'^\s*#\s*include\s*["<](\.\./|.*/\.\./)')
TORCH_INCLUDE = re.compile(r'^\s*#\s*include\s*["<](torch|ATen|c10|caffe2)/')
# What is said about a page must be found there: the file, and the numbered section.
PAGE = re.compile(r"(?<![\w/.-])docs/[\w./-]+\.md")
LINK = re.compile(r"\]\(([\w./-]+\.md)(?:#[\w-]*)?\)")
SECTIONS = re.compile(r"(docs/[\w/-]+/[\w.-]+\.md),? \(?sections? ((?:\d+(?:\.\d+)?[a-z]?(?:, | and | to |-)?)+)")
NAMESPACE = re.compile(r"^namespace\s*([\w:]*)\s*\{")
NAMESPACE_END = re.compile(r"^\}\s*// namespace")
TYPE = re.compile(r"^(?:template <.*> *)?(?:struct|class|enum class|enum) (\w+)(?:\s+final)?\s*(?::[^:].*)?\{")
CLI11_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]CLI/')
# Printed texts may quote names of files of any bytes, for which dump() of nlohmann throws.
JSON_DUMP = re.compile(r"\.dump\((?!.*error_handler_t::replace)")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")


def tracked_files():
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True).stdout.splitlines()
    return [name for name in listing if pathlib.Path(name).is_file()]


def has_section(page, number):
    heading = re.compile(rf"^##+ {re.escape(number)}[. ]", re.MULTILINE)
    return heading.search(pathlib.Path(page).read_text(encoding="utf-8")) is not None


def citations(name, text):
    """Cited pages and sections that are not there. A comment may break a line inside a citation."""
    lines = text.splitlines()
    folder = pathlib.Path(name).parent
    for number, line in enumerate(lines, start=1):
        pages = PAGE.findall(line)
        if name.endswith(".md"):
            pages += [str(folder / target) for target in LINK.findall(line) if not PAGE.match(target)]
        for page in pages:
            if not pathlib.Path(page).is_file():
                yield number, f"cites '{page}', which does not exist"
        following = lines[number].lstrip(" /#*") if number < len(lines) else ""
        both = f"{line} {following}"
        if name.endswith(".md"):
            both = LINK.sub(lambda link: " " + os.path.normpath(folder / link.group(1)), both)
        for match in SECTIONS.finditer(both):
            if match.start() > len(line) or not pathlib.Path(match.group(1)).is_file():
                continue
            for section in re.findall(r"\d+(?:\.\d+)?[a-z]?", match.group(2)):
                if not has_section(match.group(1), section):
                    yield number, f"cites section {section} of '{match.group(1)}', which has none"


def op_kinds():
    """Names of all op kinds: the first cells of the tables of docs/reference/ops.md (a test compares them)."""
    page = pathlib.Path("docs/reference/ops.md").read_text(encoding="utf-8")
    return {name for line in page.splitlines() if line.startswith("| `")
            for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def named_kinds(line, kinds):
    """Kinds whose names the line compares with something that is called a kind, or lists as a set."""
    if "kind" in line:
        yield from (word for word in COMPARED.findall(line) if word in kinds or word + "_grad" in kinds)
    for words in LISTED.findall(line):
        listed = re.findall(r"\w+", words)
        if all(word in kinds for word in listed):
            yield listed[0]


def findings(name, text, kinds):
    lines = text.splitlines()
    is_source = name.endswith((".cc", ".h"))
    strategy_free = STRATEGY_FREE.match(name) and not name.endswith("_test.cc")
    for number, line in enumerate(lines, start=1):
        if UNFINISHED.search(line):
            yield number, "unfinished work; finish it, or describe the limit in the header comment"
        if not is_source:
            continue
        if CONDITIONAL.search(line) and not BACKEND_FOLDERS.match(name):
            yield number, "a back end is tested for outside its folder; use a stub (see cmake/TesseraModule.cmake)"
        if RELATIVE_INCLUDE.search(line):
            yield number, 'relative include; write "tessera/<module>/<file>.h"'
        if TORCH_INCLUDE.search(line) and not name.startswith("tessera/runtime/"):
            yield number, "libtorch is included outside tessera/runtime"
        if CLI11_INCLUDE.search(line) and name != "tessera/cli/cli.cc":
            yield number, "CLI11 is included outside tessera/cli/cli.cc, which costs seconds to compile; use tessera/cli/cli.h"
        if name.startswith("tessera/cli/") and JSON_DUMP.search(line):
            yield number, "JSON that is printed is written by dumped() (tessera/base/json_text.h)"
        if KIND_FREE.match(name):
            for kind in named_kinds(line, kinds):
                yield number, f"names the op kind '{kind}'; ask a field of KindInfo (tessera/graph/kinds.h)"
        if strategy_free:
            for match in STRATEGIES.finditer(line):
                yield number, f"names the strategy '{match.group()}'; lowering must not know strategies"
    if is_source and len(lines) > MAX_LINES:
        if "Length:" not in "\n".join(lines[:HEADER_COMMENT_LINES]):
            yield len(lines), f"more than {MAX_LINES} lines; split it, or give the reason after 'Length:' in the header comment"


def named_types(text):
    """Line and qualified name of the types that a source defines outside anonymous namespaces."""
    spaces = []
    for number, line in enumerate(text.splitlines(), start=1):
        opened = NAMESPACE.match(line)
        if opened:
            spaces.append(opened.group(1))
        elif NAMESPACE_END.match(line) and spaces:
            spaces.pop()
        else:
            defined = TYPE.match(line)
            if defined and all(spaces):
                yield number, "::".join(spaces + [defined.group(1)])


def equal_types(sources):
    """Two definitions of one qualified name: the linker takes one type's functions for the other."""
    first = {}
    for name, text in sources:
        for number, qualified in named_types(text):
            where = first.setdefault(qualified, name)
            if where != name:
                yield name, number, f"{qualified} is also defined in {where}; types in one namespace need names of their own"


def large_folders(sources):
    """Folders with more sources than a reader can look through."""
    counts = collections.Counter(name.rsplit("/", 1)[0] for name, _ in sources
                                 if name.startswith("tessera/") and re.search(r"(?<!_test)(?<!_benchmark)\.cc$", name))
    for folder, count in sorted(counts.items()):
        if count > MAX_SOURCES:
            yield folder, 1, f"{count} sources in one folder, at most {MAX_SOURCES} may be; give them sub-folders"


def include_circles(sources):
    """Sources of a module that include each other in a circle: none of them can be read or tested without the others. A
    source is a header with its .cc."""
    edges = collections.defaultdict(set)
    for name, text in sources:
        if name.startswith("tessera/") and not re.search(r"_(test|benchmark)\.cc$", name):
            source = name.rsplit(".", 1)[0]
            included = set(re.findall(r'(?m)^#include "(tessera/[^"]+)\.h"', text)) - {source}
            edges[source] |= {other for other in included if other.split("/")[1] == source.split("/")[1]}

    def reached(start):
        seen, open_ends = set(), [start]
        while open_ends:
            for other in edges[open_ends.pop()] - seen:
                seen.add(other)
                open_ends.append(other)
        return seen
    reach = {source: reached(source) for source in list(edges)}
    known = set()
    for source in sorted(edges):
        circle = sorted(other for other in reach[source] if source in reach.get(other, ()))
        if source in known or len(circle) <= MAX_CIRCLE:
            continue
        known |= set(circle)
        allowed = CIRCLES.get(circle[0], MAX_CIRCLE)
        if len(circle) > allowed:
            yield f"{circle[0]}.h", 1, f"{len(circle)} files include each other in a circle, at most {allowed} may: {', '.join(circle)}"
        elif len(circle) < allowed:
            yield "scripts/lint_rules.py", 1, f"the circle of {circle[0]} has {len(circle)} files now: lower its number in CIRCLES"


def main():
    count = 0
    kinds = op_kinds()
    sources = []
    for name in sorted(tracked_files()):
        is_page = name.endswith(".md")
        is_code = name.endswith((".cc", ".h", ".cmake", ".txt", ".py", ".toml")) or name.startswith("scripts/")
        if not is_page and not is_code or name == "scripts/lint_rules.py":
            continue
        text = pathlib.Path(name).read_text(encoding="utf-8", errors="replace")
        found = [] if is_page else list(findings(name, text, kinds))
        if name.endswith((".cc", ".h")):
            sources.append((name, text))
        for number, message in found + list(citations(name, text)):
            print(f"{name}:{number}: {message}")
            count += 1
    for name, number, message in [*equal_types(sources), *large_folders(sources), *include_circles(sources)]:
        print(f"{name}:{number}: {message}")
        count += 1
    if count:
        print(f"lint_rules: {count} finding(s)")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
