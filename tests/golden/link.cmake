set(link tessera_test_support matrix_cases)  # lowers and prints; nothing runs
