set(link tessera_data tessera_import tessera_network tessera_orchestrate tessera_report tessera_sparse tessera_test_support)  # no libtorch: the sanitizers see all of it
