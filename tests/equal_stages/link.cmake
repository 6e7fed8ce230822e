set(link tessera_compile tessera_simulate tessera_test_support)  # nothing runs
