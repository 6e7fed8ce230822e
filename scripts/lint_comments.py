#!/usr/bin/env python3
"""Checks the form of comments in C++ sources. Exit code 1 if one breaks a rule; `lint_comments.py FILE...` checks these only.

- A comment on a function starts with its verb: "Returns the bytes of ...", not "The bytes of ..." or "How many bytes".
- A sentence does not begin with "Of", "The same" or "What": such sentences lack a subject and a verb, or hide them.

Prints one line a finding, `file:line: what was found; what to do`.
"""
import pathlib
import re
import subprocess
import sys

COMMENT = re.compile(r"^\s*//+ ?(.*)$")
# A declaration or definition of a function: a type, a name and an opening bracket; in a header a method, too.
FUNCTION = re.compile(r"^(?:template <.*> *)?(?:\[\[\w+\]\] *)?(?!return\b|else\b|using\b|throw\b|delete\b|new\b|case\b|goto\b|TEST|TYPED_TEST|INSTANTIATE)"
                      r"[\w:][\w:<>,&*\s]*[&*\s>](?:[\w:~]+|operator\W+)\(")
CONSTRUCTOR = re.compile(r"^(?:explicit )?([A-Z]\w*[a-z]\w*)\([^()]*(?:\([^()]*\))*[^()]*\)?(?: :.*|;| \{.*|,)?$")
VERB = re.compile(r"^[A-Z][a-z]+s$")
# Words in -s that open a comment and are no verbs of a function.
NOT_VERBS = set("""Is Does Has Was This Its As Axes Blocks Bytes Bits Buffers Cells Classes Columns Constants Contents
    Defaults Devices Digits Dims Edges Elements Entries Errors Events Fields Files Flags Floats Formulas Gradients Groups
    Heads Ids Indices Items Keys Kinds Layers Lines Links Machines Members Messages Microseconds Milliseconds Models Modules
    Nodes Numbers Ops Operands Options Pairs Parameters Parts Pieces Plans Ports Programs Ranks Regions Replicas Roles Rows
    Rules Seconds Sequences Shards Sizes Slots Sources Stages Stacks Strings Tables Tensors Terms Tests Texts Threads Tokens
    Types Units Values Variants Views Weights Windows Words""".split())
# A row of a table of formulas, or a symbol, has no verb.
FORMULA = re.compile(r"^[^A-Z]")
SENTENCE = re.compile(r"(?:^|(?<=[.!?] ))(Of|The same|What) ")


def blocks(lines):
    """First line number, texts and the code line behind each comment that stands on lines of its own."""
    start = None
    for number, line in enumerate([*lines, ""]):
        if COMMENT.match(line):
            start = number if start is None else start
        elif start is not None:
            yield start + 1, [COMMENT.match(text).group(1) for text in lines[start:number]], line
            start = None


def is_function(name, code):
    indent = len(code) - len(code.lstrip())
    if indent > (2 if name.endswith(".h") else 0):
        return False
    code = code.strip()
    return "(" in code and " = " not in code.split("(")[0] and (FUNCTION.match(code) or CONSTRUCTOR.match(code)) is not None


def findings(name, text):
    for number, texts, code in blocks(text.splitlines()):
        opening = texts[0].strip()
        product = not re.search(r"(_test|_benchmark)\.cc$|^(tests|benchmarks)/", name)
        if product and is_function(name, code) and opening and not FORMULA.match(opening):
            first = re.match(r"[\w']+", opening)
            word = first.group() if first else opening
            if not VERB.match(word) or word in NOT_VERBS:
                yield number, f"a comment on a function starts with '{word}'; start with what the function does: Returns, Writes, Checks"
        joined = " ".join(part.strip() for part in texts)
        for sentence in SENTENCE.finditer(joined):
            before = len(re.findall(r"\S+", joined[:sentence.start()]))
            words, line = 0, number
            for offset, part in enumerate(texts):
                words += len(part.split())
                if words > before:
                    line = number + offset
                    break
            yield line, f"a sentence begins with '{sentence.group(1)}'; name its subject and give it a verb"


def main():
    names = sys.argv[1:] or subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.cc", "*.h"],
                                           check=True, capture_output=True, text=True).stdout.splitlines()
    count = 0
    for name in names:
        if pathlib.Path(name).is_file():
            for number, message in findings(name, pathlib.Path(name).read_text(encoding="utf-8")):
                print(f"{name}:{number}: {message}")
                count += 1
    print(f"lint_comments: {count} finding(s)")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
