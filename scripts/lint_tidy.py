#!/usr/bin/env python3
"""Runs clang-tidy on the sources of the compilation database, on all cores, skipping what has not changed.

  python3 scripts/lint_tidy.py             all sources
  python3 scripts/lint_tidy.py FILE...     these alone
  python3 scripts/lint_tidy.py --changed   those whose code changed in the last day, or that include what changed

Where sources are compiled in batches (TESSERA_UNITY), clang-tidy too takes a batch's sources at once, which takes a
quarter of the time: most of it goes to the system's headers. A batch without a finding clears its sources. Else each is
examined alone, so that findings are those of single sources. Their commands, which build/compile_commands.json lacks, are
written to build/lint/compile_commands.json; editors can use them too.

Tests, benchmarks and the files that include libtorch are left out: the first two gain little, and one libtorch file
costs clang-tidy about half a minute. A source is examined again only if it, a header of ours that it includes
(directly or not), or .clang-tidy has changed; stamps lie in build/lint/. A change of comments and layout alone is none,
as long as no NOLINT is concerned.

Exit code 1 if there is a finding.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

CLANG_TIDY = "clang-tidy-16"
ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
STAMPS = BUILD / "lint"
STAGED = re.compile(r"build/include/\w+/tessera/")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
ANY_INCLUDE = re.compile(r"^\s*#\s*include\b.*$", re.MULTILINE)
BATCHED = re.compile(r'^#include "(.+)"$', re.MULTILINE)
TORCH = re.compile(r'^\s*#\s*include\s*["<](torch|ATen|c10|mpi\.h)', re.MULTILINE)
# A string, which is kept, or a comment.
COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*"|R"(\w*)\(.*?\)\2")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def code_of(text):
    """Returns the text without comments and layout; comments with NOLINT stay."""
    return "".join(COMMENT.sub(lambda part: part.group() if part.group(1) or "NOLINT" in part.group() else " ", text).split())


def closure(path, seen):
    """The file and every header of ours that it includes, in `seen` as path -> text."""
    if path in seen or not path.is_file():
        return seen
    text = path.read_text(encoding="utf-8", errors="replace")
    seen[path] = text
    for name in INCLUDE.findall(text):
        for candidate in (ROOT / name, path.parent / name):
            if candidate.is_file():
                closure(candidate.resolve(), seen)
                break
    return seen


def batches_and_database():
    """The sources of each batch, and the commands of single sources."""
    batches, singles = [], []
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        batch = BATCHED.findall(file.read_text()) if file.parent.name == "Unity" else [entry["file"]]
        singles += [{"directory": entry["directory"], "file": source,
                     "command": entry["command"].replace(entry["file"], source)} for source in batch]
        batches.append([pathlib.Path(source).resolve() for source in batch])
    return batches, singles


def is_wanted(path):
    return path.is_relative_to(ROOT / "tessera") and not path.stem.endswith(("_test", "_benchmark"))


def stamp_of(files):
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for path in sorted(files):
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(code_of(files[path]).encode())
    return digest.hexdigest()


def changed_files():
    """Returns the files whose code differs from the newest commit that is a day older than the last one; None: take all."""
    def git(*words):
        result = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
        return result.stdout.strip() if result.returncode == 0 else ""
    last = git("log", "-1", "--format=%ct")
    before = git("rev-list", "-1", f"--before={int(last) - 86400}", "HEAD") if last else ""
    if not before:
        return None
    # Each line: a letter, the file's name, and if the letter is R the name that it has now.
    names = {fields[-1]: fields[1] for fields in map(str.split, git("diff", "--name-status", "-M", before).splitlines())}
    if ".clang-tidy" in names:
        return None

    def code_without_includes(text):
        return code_of(ANY_INCLUDE.sub("", text))

    # A file that was moved, or that includes one that was, has no other code for that.
    def has_other_code(name):
        path = ROOT / name
        return not path.is_file() or (code_without_includes(path.read_text(encoding="utf-8", errors="replace"))
                                      != code_without_includes(git("show", f"{before}:{names[name]}")))
    return {(ROOT / name).resolve() for name in names if has_other_code(name)}


def open_stamp(path, changed):
    """Where the source's stamp lies, and what it shall say; None if the source need not be examined."""
    files = closure(path, {})
    if any(TORCH.search(text) for text in files.values()):
        return None
    if changed is not None and changed.isdisjoint(files):
        return None
    stamp = STAMPS / (str(path.relative_to(ROOT)).replace("/", "+") + ".stamp")
    value = stamp_of(files)
    return None if stamp.is_file() and stamp.read_text() == value else (stamp, value)


def findings_of(path, *options):
    # GCC has already reported its warnings; -w keeps clang from judging GCC's options.
    result = subprocess.run(
        [CLANG_TIDY, "-p", str(STAMPS), "--quiet", "--extra-arg=-w", *options, str(path)],
        capture_output=True, text=True, check=False)
    if result.returncode == 0 and not result.stdout.strip():
        return ""
    # Headers are found through build/include/<module>/ (cmake/TesseraModule.cmake); show them where they lie.
    text = (result.stdout or result.stderr).replace(str(ROOT) + "/", "")
    return STAGED.sub("tessera/", text)


def examine(batch):
    """Returns the findings of each source with any, as texts; `batch` is (its file or None, source -> open stamp)."""
    file, sources = batch
    clean = file is not None and not findings_of(file, "--checks=-bugprone-suspicious-include")
    texts = []
    for source, (stamp, value) in sources.items():
        text = "" if clean else findings_of(source)
        if text:
            texts.append(text)
        else:
            stamp.write_text(value)
    return texts


def prepare(named, changed):
    """What is to be examined, as `examine` takes it; writes the compilation database of it.

    `named` limits it to these sources, `changed` to those whose closure holds one of these files; empty and None: all.
    """
    STAMPS.mkdir(parents=True, exist_ok=True)
    batches, database = batches_and_database()
    command_of = {pathlib.Path(entry["file"]).resolve(): entry for entry in database}
    seen, work = set(), []
    for number, batch in enumerate(sorted(batches)):
        sources = {}
        for path in batch:
            if is_wanted(path) and path not in seen and (not named or path in named):
                seen.add(path)
                stamp = open_stamp(path, changed)
                if stamp:
                    sources[path] = stamp
        file = None
        if len(sources) > 1:
            file = STAMPS / f"batch_{number}.cc"
            file.write_text("".join(f'#include "{source}"\n' for source in sources))
            first = next(iter(sources))
            entry = command_of[first]
            database.append({"directory": entry["directory"], "file": str(file),
                             "command": entry["command"].replace(entry["file"], str(file))})
        if sources:
            work.append((file, sources))
    (STAMPS / "compile_commands.json").write_text(json.dumps(database, indent=1))
    return work


def without_repeats(text, seen):
    """Findings in a header come once for each source that includes it; keeps the first."""
    kept = []
    for finding in re.split(r"^(?=\S+:\d+:\d+: (?:error|warning): )", text, flags=re.MULTILINE):
        if finding not in seen:
            seen.add(finding)
            kept.append(finding)
    return "".join(kept)


def main():
    if not (BUILD / "compile_commands.json").is_file():
        print("lint_tidy: expected build/compile_commands.json; run 'make build' first", file=sys.stderr)
        return 2
    words = sys.argv[1:]
    changed = changed_files() if words == ["--changed"] else None
    named = set() if words == ["--changed"] else {pathlib.Path(name).resolve() for name in words}
    failed = 0
    seen = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for texts in pool.map(examine, prepare(named, changed)):
            for text in texts:
                print(without_repeats(text, seen), end="")
                failed += 1
    if failed:
        print(f"lint_tidy: findings in {failed} file(s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
