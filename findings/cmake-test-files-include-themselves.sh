#!/usr/bin/env bash
# One would expect that ctest can list the tests of a build folder at any time, or is told to wait. With
# gtest_discover_tests and a generator for one configuration, CMake first writes, at the call, a file
# NAME[1]_include.cmake that includes itself, and puts the true text there only when it generates. So a ctest
# that starts while the folder is configured again reads a file without an end: it stops at CMake's limit of
# nested includes and lists nothing. A script that lists tests beside a build must keep the two apart, for
# example by a lock.
#
# The project below reads that file, and starts ctest, from its own CMakeLists.txt, that is while CMake configures.
#
# Needs: bash, python3 (3.10 or newer), cmake 3.25.2 and ninja 1.11.1.1 from PyPI, which are downloaded (30 MB).
# Seen:
#   while CMake configures: the file includes itself, ctest fails (recursion)
#   afterwards: the file includes other files, ctest lists 2 tests
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check cmake==3.25.2 ninja==1.11.1.1
export PATH="$work/venv/bin:$PATH"
cmake --version | head -1
[[ "$(cmake --version | head -1)" == "cmake version 3.25.2" ]] || { echo "expected cmake 3.25.2" >&2; exit 1; }

mkdir "$work/project"
cat > "$work/project/tests" <<'TESTS'
#!/usr/bin/env bash
[[ "${1:-}" == --gtest_list_tests ]] && printf 'Group.\n  one\n  two\n'
exit 0
TESTS
chmod +x "$work/project/tests"
cat > "$work/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(example LANGUAGES NONE)
enable_testing()
include(GoogleTest)
add_executable(tests IMPORTED)
set_target_properties(tests PROPERTIES IMPORTED_LOCATION "${CMAKE_SOURCE_DIR}/tests")
gtest_discover_tests(tests DISCOVERY_MODE PRE_TEST)
file(READ "${CMAKE_BINARY_DIR}/tests[1]_include.cmake" text)
file(WRITE "${CMAKE_BINARY_DIR}/seen.txt" "${text}")
execute_process(COMMAND ctest -N WORKING_DIRECTORY "${CMAKE_BINARY_DIR}" OUTPUT_FILE during.txt ERROR_FILE during.txt)
CMAKE

configure() { cmake -G Ninja -S "$work/project" -B "$work/build" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }
configure  # the first time there is nothing to list yet
configure
seen=$(cat "$work/build/seen.txt")
[[ "$seen" == *'include('*'tests[1]_include.cmake")'* ]] || { echo "changed: the file has '$seen'" >&2; exit 1; }
grep -qi "recursion depth" "$work/build/during.txt" || { echo "changed: ctest said:" >&2; tail -3 "$work/build/during.txt" >&2; exit 1; }
echo "  while CMake configures: the file includes itself, ctest fails (recursion)"
after=$(cd "$work/build" && ctest -N | grep "Total Tests")
[[ "$after" == "Total Tests: 2" ]] || { echo "changed: afterwards ctest says '$after'" >&2; exit 1; }
grep -q GoogleTestAddTests "$work/build/tests[1]_include.cmake" || { echo "changed: another file afterwards" >&2; exit 1; }
echo "  afterwards: the file includes other files, ctest lists 2 tests"
echo "as found: test files of a folder that is being configured cannot be read."
