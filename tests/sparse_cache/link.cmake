set(link tessera_sparse tessera_data)  # no libtorch: the sanitizers see all of it
