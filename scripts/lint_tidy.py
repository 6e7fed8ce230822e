#!/usr/bin/env python3
"""Runs clang-tidy on the sources of the compilation database, on all cores, skipping what has not changed.

Tests, benchmarks and the files that include libtorch are left out: the first two gain little, and one libtorch file
costs clang-tidy about half a minute. A source is examined again only if it, a header of ours that it includes
(directly or not), or .clang-tidy has changed; stamps lie in build/lint/.

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
TORCH = re.compile(r'^\s*#\s*include\s*["<](torch|ATen|c10|mpi\.h)', re.MULTILINE)


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


def sources():
    database = json.loads((BUILD / "compile_commands.json").read_text())
    paths = {pathlib.Path(entry["file"]).resolve() for entry in database}
    wanted = [path for path in paths
              if path.is_relative_to(ROOT / "tessera") and not path.stem.endswith(("_test", "_benchmark"))]
    return sorted(wanted)


def stamp_of(files):
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for path in sorted(files):
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(files[path].encode())
    return digest.hexdigest()


def examine(path):
    """Returns the findings as text; empty if the source is clean."""
    files = closure(path, {})
    if any(TORCH.search(text) for text in files.values()):
        return ""
    stamp = STAMPS / (str(path.relative_to(ROOT)).replace("/", "+") + ".stamp")
    value = stamp_of(files)
    if stamp.is_file() and stamp.read_text() == value:
        return ""
    # GCC has already reported its warnings; -w keeps clang from judging GCC's options.
    result = subprocess.run(
        [CLANG_TIDY, "-p", str(BUILD), "--quiet", "--extra-arg=-w", str(path)],
        capture_output=True, text=True, check=False)
    if result.returncode == 0 and not result.stdout.strip():
        stamp.write_text(value)
        return ""
    # Headers are found through build/include/<module>/ (cmake/TesseraModule.cmake); show them where they lie.
    text = (result.stdout or result.stderr).replace(str(ROOT) + "/", "")
    return STAGED.sub("tessera/", text)


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
    STAMPS.mkdir(parents=True, exist_ok=True)
    failed = 0
    seen = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for output in pool.map(examine, sources()):
            if output:
                print(without_repeats(output, seen), end="")
                failed += 1
    if failed:
        print(f"lint_tidy: findings in {failed} file(s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
