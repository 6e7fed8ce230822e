set(link tessera_network tessera_compile)  # nothing runs
