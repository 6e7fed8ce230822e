set(link tessera_all matrix_cases)
