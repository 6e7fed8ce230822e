set(link tessera_network tessera_comm)  # no libtorch
