set(link tessera_test_support)
