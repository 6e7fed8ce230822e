set(link tessera_export matrix_cases)  # nothing runs
