# A graph evaluated op by op (tessera/runtime/testing.h).
list(APPEND slow "${PROJECT_SOURCE_DIR}/tessera/runtime/testing_test.cc")
