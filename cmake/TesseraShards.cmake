# Read by ctest, not by CMake: tessera_add_shards() divides the tests of a program into shards of at most
# TESSERA_TESTS_PER_SHARD, each an entry `<name>/shard_<i>_of_<n>`. Their number follows from the tests that the program
# lists; it is asked again when the program is newer than the answer. A program that is not built is an entry that
# fails and says so.
set(TESSERA_TESTS_PER_SHARD 80)

# Sets `variable` to the number of tests of `program`; `cache` keeps the answer.
function(tessera_count_tests variable program cache)
  if(NOT EXISTS "${cache}" OR "${program}" IS_NEWER_THAN "${cache}")
    execute_process(COMMAND "${program}" --gtest_list_tests OUTPUT_VARIABLE listing RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "${program} --gtest_list_tests ended with: ${failed}")
    endif()
    # A test is a line that is indented, below its suite.
    string(REGEX MATCHALL "\n  [^\n]" tests "\n${listing}")
    list(LENGTH tests count)
    file(WRITE "${cache}" "${count}")
  endif()
  file(READ "${cache}" count)
  set(${variable} ${count} PARENT_SCOPE)
endfunction()

# tessera_add_shards(<name> <program> <property> <value>...): the properties are those of each entry; ENVIRONMENT is
# given as one value without semicolons.
function(tessera_add_shards name program)
  if(NOT EXISTS "${program}")
    add_test("${name}_NOT_BUILT" "${name}_NOT_BUILT")
    return()
  endif()
  tessera_count_tests(count "${program}" "${program}.test_count")
  math(EXPR shards "(${count} + ${TESSERA_TESTS_PER_SHARD} - 1) / ${TESSERA_TESTS_PER_SHARD}")
  if(shards LESS 1)
    set(shards 1)
  endif()
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "ENVIRONMENT" "")
  foreach(number RANGE 1 ${shards})
    math(EXPR index "${number} - 1")
    set(entry "${name}/shard_${number}_of_${shards}")
    add_test("${entry}" "${program}")
    set_tests_properties("${entry}" PROPERTIES ${arg_UNPARSED_ARGUMENTS}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index};${arg_ENVIRONMENT}")
  endforeach()
endfunction()
