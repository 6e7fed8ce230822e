set(link tessera_test_support matrix_cases tessera_export)  # lowers and prints; nothing runs
