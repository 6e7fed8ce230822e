# Needs the runtime: programs are executed.
if(NOT TARGET tessera_runtime)
  message(STATUS "Tests of devices: skipped, built without the runtime")
  set(quick "")
  set(slow "")
endif()
set(link tessera_all tessera_test_support matrix_cases)
