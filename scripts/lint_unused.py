#!/usr/bin/env python3
"""Finds functions and types of the product that only tests use. Exit code 1 if there is one.

A name is used if a source of the product (tessera/, without its tests and benchmarks) mentions it in code that is itself
used, beginning with main(), with tables and other variables at file level, and with what EXCEPTIONS names. Names are
compared as words, without types: an unused `size()` beside a used one is not found, and what is found is unused.

Prints one line a name, `file:line: what was found; what to do`.
"""
import pathlib
import re
import subprocess
import sys

# What is used all the same: the reason, by name.
COMPLETE = "lists what there is, so that tests try or compare all of it"
STANDARD = "is looked for by the standard library"
KERNEL = "runs on real devices (docs/strategies/graph-partitions.md section 9)"
FMT = "is what fmt's own source instantiates (tessera/python/format.cc)"
COUNTS = "tells what private state holds; tests compare it with memory taken, and with the invariants"
EXCEPTIONS = {
    "size_type": STANDARD, "difference_type": STANDARD, "const_reference": STANDARD, "is_transparent": STANDARD,
    "all_class_constants": COMPLETE, "all_device_constants": COMPLETE, "all_matmul_constants": COMPLETE,
    "all_optimizers": COMPLETE, "huggingface_keys": COMPLETE, "kernel_kinds": COMPLETE, "row_cache_policies": COMPLETE,
    "spmm_on_device": KERNEL, "device_error": KERNEL,
    "to_decimal": FMT, "thousands_sep_impl": FMT, "decimal_point_impl": FMT, "vformat_to": FMT,
    "NB_MODULE": "is the entry of the Python package's extension module",
    "index_bytes": COUNTS, "scratch_bytes": COUNTS, "violation": COUNTS,
    "have_hdf5": "lets a test say why it does not run",
    "check_machines": "parses a table of the program; a test gives it damaged ones",
    "verify_model": "does what `tessera verify` does, with a model that a test has built",
}

TEST_FILE = re.compile(r"(_test|_slow|_quick|_benchmark)\.cc$|/(test_\w+|testing)\.h$")
TOKEN = re.compile(r"""
    (?P<skip>//[^\n]*|/\*.*?\*/)
  | (?P<define>^[ \t]*\#[^\n]*(?:\\\n[^\n]*)*)
  | (?P<text>R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
  | (?P<number>\d(?:[\w.]|'(?=\w))*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<sign>::|->|[{}()\[\]<>;:=,~&*])
""", re.VERBOSE | re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")
TYPE_WORDS = {"struct", "class", "enum", "union"}
NO_NAMES = {"if", "for", "while", "switch", "return", "sizeof", "decltype", "alignas", "noexcept", "requires", "operator",
            "static_assert", "__attribute__", "defined", "explicit"}


class Region:
    """A declaration or definition at the level of a namespace or a class, and the words that it mentions."""

    def __init__(self, file, line, parent):
        self.file, self.line, self.parent = file, line, parent
        self.names = set()      # what it declares; none: it is used with its type, or always
        self.owners = []        # the types of which it is a member
        self.type_name = None   # the type to which a definition outside of it belongs
        self.special = False    # a member that is used with its type: a constructor, an override, a variable
        self.words = []
        self.is_type = False


def tokens(text):
    """Kind, text and line of each token; kinds are the names of the groups of TOKEN."""
    line, position = 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        yield match.lastgroup if match.lastgroup != "mark" else "text", match.group(), line


def regions(name, text):
    """Cuts a source into regions. Braces at the level of a namespace or a class open one of these or a body."""
    found = []
    stack = [("namespace", None)]      # the open scopes: kind, and the region of the type
    statement = []                     # tokens since the last end of a declaration at this level
    region = None
    depth = 0                          # braces, parentheses and brackets that are open inside the statement

    def begin(line):
        nonlocal region
        region = Region(name, line, stack[-1][1])
        found.append(region)

    def end():
        nonlocal region, statement
        if region is not None:
            describe(region, statement)
        region, statement = None, []

    for kind, token, line in tokens(text):
        if kind in ("skip", "text", "number"):
            if kind == "text" and region is not None:
                statement.append('""')
            continue
        if kind == "define":
            if "define" in token:
                macro = Region(name, line, None)
                macro.words = WORD.findall(token)
                found.append(macro)
            continue
        if region is None:
            if token == "}":
                if len(stack) > 1:
                    stack.pop()
                continue
            if token in (";", ":"):
                continue
            if token in ("public", "private", "protected"):
                continue
            begin(line)
        if kind == "word":
            region.words.append(token)
        if depth == 0 and token == "{":
            opened = scope(statement)
            if opened == "namespace":
                found.remove(region)
                stack.append(("namespace", None))
                region, statement = None, []
                continue
            if opened == "type":
                describe(region, statement)
                stack.append(("type", region))
                region, statement = None, []
                continue
        statement.append(token if depth == 0 or token in "{}()[]" else None)
        if token in ("{", "(", "["):
            depth += 1
        elif token in ("}", ")", "]"):
            depth -= 1
            if depth == 0 and token == "}" and is_body(statement):
                end()
        elif token == ";" and depth == 0:
            end()
    return found


def top_level(statement):
    """The tokens outside parentheses, brackets and braces; of these, the opening ones alone stay."""
    depth, result = 0, []
    for token in statement:
        if token in (")", "]", "}"):
            depth -= 1
        if depth == 0 and token is not None:
            result.append(token)
        if token in ("(", "[", "{"):
            depth += 1
    return result


def without_templates(words):
    """Drops `template <...>` and other angle brackets."""
    result, depth = [], 0
    for index, token in enumerate(words):
        if token == "<" and index and words[index - 1] != "operator":
            depth += 1
        elif token == ">" and depth:
            depth -= 1
        elif depth == 0:
            result.append(token)
    return result


def scope(statement):
    """What a brace opens behind these tokens: a namespace, a type, or a body (of a function, or an initialiser)."""
    words = without_templates(top_level(statement))
    if "namespace" in words or words[:1] == ["extern"] and words[-1:] == ['""']:
        return "namespace"
    if "(" in words and not (words[:1] and words[0] in TYPE_WORDS and "__attribute__" in words):
        return "body"
    if "=" in words:
        return "body"
    return "type" if TYPE_WORDS & set(words) and "enum" not in words else "body"


def is_body(statement):
    """Whether a closing brace ends the declaration: that of a function does, that of an initialiser does not."""
    words = without_templates(top_level(statement))
    if "=" in words[:-1] and "operator" not in words:
        return False
    if "(" not in words:
        return False
    # `: a_{1}, b_{2} {`: a brace behind a name of the list of initialisers is no body.
    opening = len(words) - 2
    before = words[opening - 1] if opening else ""
    if ":" in words[:opening]:
        return before in (")", "}") and words[opening] == "{"
    return True


def describe(region, statement):
    """Finds what the declaration names, and the type to which it belongs."""
    words = without_templates(top_level(statement))
    if not words or words[0] in ("using", "static_assert", "typedef", "friend", "namespace"):
        if words[:1] == ["using"] and "=" in words and len(words) > 1:
            region.names = {words[1]}
        return
    if words[0] in TYPE_WORDS or (words[0] in ("template", "final") and len(words) > 1 and words[1] in TYPE_WORDS):
        names = [word for word in words if WORD.fullmatch(word) and word not in TYPE_WORDS | {"template", "final", "alignas"}]
        if names and "(" not in words[:3]:
            region.names, region.is_type = {names[0]}, True
            return
    equals = words.index("=") if "=" in words else len(words)
    opening = words.index("(") if "(" in words else len(words)
    if "operator" in words[:opening]:
        at = words.index("operator")
        if at > 2 and words[at - 1] == "::":
            region.type_name = words[at - 2]
            region.words.remove(region.type_name)
        return
    if opening == 0 or opening > equals or opening == len(words):
        return
    called = words[opening - 1]
    if not WORD.fullmatch(called) or called in NO_NAMES or called.startswith("__"):
        return
    region.names = {called}
    if opening > 1 and words[opening - 2] == "~":
        del words[opening - 2]
        opening -= 1
        region.special = True
    if opening > 2 and words[opening - 2] == "::":
        # `Type::function() {` belongs to the type and does not mention it.
        region.type_name = words[opening - 3]
        region.words.remove(region.type_name)
        region.special |= called == region.type_name
    elif region.parent is not None:
        region.special |= "override" in words or called in region.parent.names


def used_regions(all_regions, exceptions):
    """Marks what main(), variables at file level and the exceptions reach, by words."""
    declares = {}
    types = {}
    for region in all_regions:
        for name in region.names:
            (types if region.is_type else declares).setdefault(name, []).append(region)
    members = {}      # by type; a member is used if its type is, and if its name is mentioned
    for region in all_regions:
        owners = [region.parent] if region.parent is not None else types.get(region.type_name, [])
        region.owners = owners
        for owner in owners:
            members.setdefault(id(owner), []).append(region)
    used, known, waiting = set(), set(), []

    def consider(region):
        if id(region) in used:
            return
        if region.owners and not any(id(owner) in used for owner in region.owners):
            return
        if region.names and not region.special and not region.names & known:
            return
        used.add(id(region))
        waiting.append(region)

    def mention(word):
        if word not in known:
            known.add(word)
            for region in declares.get(word, []) + types.get(word, []):
                consider(region)

    for word in ["main", *exceptions]:
        mention(word)
    for region in all_regions:
        consider(region)
    while waiting:
        region = waiting.pop()
        for word in set(region.words) - region.names:
            mention(word)
        for member in members.get(id(region), []):
            consider(member)
    return used


def main():
    """Reads the product, prints what it does not use, and returns the exit code."""
    listing = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "tessera"],
                             check=True, capture_output=True, text=True).stdout.splitlines()
    all_regions = []
    for name in sorted(listing):
        path = pathlib.Path(name)
        if name.endswith((".cc", ".h", ".cu")) and path.is_file() and not TEST_FILE.search(name):
            all_regions += regions(name, path.read_text(encoding="utf-8"))
    unneeded = used_regions(all_regions, [])
    needed = {name for region in all_regions if id(region) not in unneeded for name in region.names}
    used = used_regions(all_regions, EXCEPTIONS)
    reported = set(EXCEPTIONS) - needed
    for name in sorted(reported):
        print(f"scripts/lint_unused.py:1: the exception '{name}' is used, or is gone; remove it from EXCEPTIONS")
    for region in all_regions:
        of_unused = region.owners and not any(id(owner) in used for owner in region.owners)
        if id(region) in used or region.special or of_unused:
            continue
        for name in sorted(region.names - reported):
            reported.add(name)
            what = "type" if region.is_type else "function"
            print(f"{region.file}:{region.line}: the {what} '{name}' is used by tests at most; remove it, or move it to "
                  "tests/support or to a header test_*.h beside its test")
    if reported:
        print(f"lint_unused: {len(reported)} finding(s)")
    return 1 if reported else 0


if __name__ == "__main__":
    sys.exit(main())
